// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// CoreSched gives processes core-scheduling cookies: only tasks with equal cookies run on the threads of one core at a
// time (Documentation/admin-guide/hw-vuln/core-scheduling.rst; Linux 5.14, CONFIG_SCHED_CORE, SMT).
//
// The kernel has no names for cookies, so the members of a group are remembered; a cookie is passed on from any of them
// that still lives. After a restart Adopt tells it the running containers again. It is safe for concurrent use.
type CoreSched struct {
	fs     FS
	kernel cookieKernel

	mu     sync.Mutex
	groups map[string][]member
}

// member is a process by pid and start time: a pid alone may be reused by a stranger.
type member struct {
	pid   int
	start uint64
}

// cookieKernel is prctl(PR_SCHED_CORE), whole operations at a time.
type cookieKernel interface {
	// cookie of a thread, 0 for none. The number only tells cookies apart.
	cookie(pid int) (uint64, error)
	// create gives all threads of a process a new cookie.
	create(pid int) error
	// share gives all threads of a process the cookie of another.
	share(from, to int) error
	// clear takes the cookie away from all threads of a process.
	clear(pid int) error
}

// NewCoreSched returns an empty table; fs is where start times are read.
func NewCoreSched(fs FS) *CoreSched {
	return &CoreSched{fs: fs, kernel: prctlCookies{}, groups: map[string][]member{}}
}

// CoreSchedSupported asks the kernel by reading the cookie of the calling thread. The error is an *UnsupportedError.
func CoreSchedSupported() error {
	_, err := prctlCookies{}.cookie(0)
	return err
}

// Cookie of a process's main thread; 0 is none.
func (c *CoreSched) Cookie(pid int) (uint64, error) { return c.kernel.cookie(pid) }

// Assign puts a process with all its threads into a group: it gets the group's cookie, or a new one when no member of
// the group is alive. Its future children inherit it. The process must not have been given another group's children.
func (c *CoreSched) Assign(group string, pid int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	start, err := c.fs.StartTime(pid)
	if err != nil {
		return fmt.Errorf("assign %d to core-scheduling group %q: %w", pid, group, err)
	}
	me := member{pid, start}
	leader, cookie := c.leader(group, me)
	if leader == 0 {
		err = c.kernel.create(pid)
	} else if own, cerr := c.kernel.cookie(pid); cerr != nil || own != cookie {
		err = c.kernel.share(leader, pid)
	}
	if err != nil {
		return fmt.Errorf("assign %d to core-scheduling group %q: %w", pid, group, err)
	}
	c.remember(group, me)
	return nil
}

// Adopt records that a process already belongs to a group, as after a restart of ours. It reports false when the
// process has to be assigned: it has no cookie, or another one than a member of the group that lives.
func (c *CoreSched) Adopt(group string, pid int) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cookie, err := c.kernel.cookie(pid)
	if err != nil || cookie == 0 {
		return false, err
	}
	start, err := c.fs.StartTime(pid)
	if err != nil {
		return false, err
	}
	me := member{pid, start}
	if leader, shared := c.leader(group, me); leader != 0 && shared != cookie {
		return false, nil
	}
	c.remember(group, me)
	return true, nil
}

// InGroup reports whether a process carries the cookie of its group. Without another live member the one that it was
// given will do. The group "" are the processes without a cookie.
func (c *CoreSched) InGroup(group string, pid int) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own, err := c.kernel.cookie(pid)
	if err != nil || own == 0 || group == "" {
		return err == nil && own == 0 && group == "", err
	}
	start, err := c.fs.StartTime(pid)
	if err != nil {
		return false, err
	}
	leader, cookie := c.leader(group, member{pid, start})
	return leader == 0 && slices.Contains(c.groups[group], member{pid, start}) || leader != 0 && cookie == own, nil
}

// Clear takes the cookie from a process and forgets it.
func (c *CoreSched) Clear(pid int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for group := range c.groups {
		c.forget(group, pid)
	}
	if err := c.kernel.clear(pid); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("clear core-scheduling cookie of %d: %w", pid, err)
	}
	return nil
}

// leader finds a live member other than me and its cookie; 0 when there is none.
func (c *CoreSched) leader(group string, me member) (pid int, cookie uint64) {
	c.prune(group)
	for _, m := range c.groups[group] {
		if m == me {
			continue
		}
		if cookie, err := c.kernel.cookie(m.pid); err == nil && cookie != 0 {
			return m.pid, cookie
		}
	}
	return 0, 0
}

// prune drops the members that have ended, and the group with its last one.
func (c *CoreSched) prune(group string) {
	c.groups[group] = slices.DeleteFunc(c.groups[group], func(m member) bool {
		start, err := c.fs.StartTime(m.pid)
		return err != nil || start != m.start
	})
	if len(c.groups[group]) == 0 {
		delete(c.groups, group)
	}
}

func (c *CoreSched) forget(group string, pid int) {
	c.groups[group] = slices.DeleteFunc(c.groups[group], func(m member) bool { return m.pid == pid })
	if len(c.groups[group]) == 0 {
		delete(c.groups, group)
	}
}

func (c *CoreSched) remember(group string, me member) {
	for other := range c.groups {
		c.forget(other, me.pid)
	}
	c.groups[group] = append(c.groups[group], me)
}
