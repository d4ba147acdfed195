// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/scan"
)

// Scheduling policies (include/uapi/linux/sched.h).
const (
	SchedNormal = unix.SCHED_NORMAL
	SchedRR     = unix.SCHED_RR
	SchedBatch  = unix.SCHED_BATCH
	SchedIdle   = unix.SCHED_IDLE
)

// schedPasses bounds how often SetSchedPolicy looks for threads that were created meanwhile by a thread it had not
// reached yet. A process that forks faster than this is reported, not chased.
const schedPasses = 8

// SchedPolicy reads the policy of a process's main thread: a SCHED_* number (sched_getattr(2)).
func SchedPolicy(pid int) (int, error) {
	attr, err := unix.SchedGetAttr(pid, 0)
	if err != nil {
		return 0, fmt.Errorf("read scheduling policy of %d: %w", pid, err)
	}
	return int(attr.Policy), nil
}

// StatPolicy reads the policy of a process's main thread from /proc/PID/stat, field 41, for a procfs that is another's (proc(5)).
func (fs FS) StatPolicy(pid int) (int, error) {
	path := fs.pid(pid, "stat")
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	policy, err := parseStatField(string(b), 41)
	if err != nil || policy > math.MaxInt8 {
		return 0, fmt.Errorf("parse %s: policy %d: %w", path, policy, errors.Join(err, scan.ErrFormat))
	}
	return int(policy), nil
}

// SetSchedPolicy gives every thread of a process one of the policies without parameters: SCHED_NORMAL (0), SCHED_BATCH
// (3) or SCHED_IDLE (5). Nice values and the reset-on-fork flag stay (sched_setattr(2), Linux 3.14); a custom slice
// (Linux 6.12) falls back to the default on the way to SCHED_NORMAL. Children inherit the policy. A thread that ends meanwhile is no error; a process that is gone is unix.ESRCH.
func (fs FS) SetSchedPolicy(pid, policy int) error {
	switch policy {
	case SchedNormal, SchedBatch, SchedIdle:
	default:
		return fmt.Errorf("set scheduling policy of %d: policy %d needs parameters or does not exist", pid, policy)
	}
	for range schedPasses {
		changed, err := fs.schedPass(pid, policy)
		if err != nil || !changed {
			return err
		}
	}
	return fmt.Errorf("set scheduling policy of %d: threads appear faster than they are set", pid)
}

// schedPass sets every thread once and reports whether any was different.
func (fs FS) schedPass(pid, policy int) (changed bool, err error) {
	tids, err := fs.Threads(pid)
	if errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("set scheduling policy of %d: %w", pid, unix.ESRCH)
	}
	if err != nil {
		return false, err
	}
	for _, tid := range tids {
		did, err := setThreadPolicy(tid, policy)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return changed, fmt.Errorf("set scheduling policy %d of thread %d of %d: %w", policy, tid, pid, err)
		}
		changed = changed || did
	}
	return changed, nil
}

func setThreadPolicy(tid, policy int) (changed bool, err error) {
	attr, err := unix.SchedGetAttr(tid, 0)
	if err != nil || int(attr.Policy) == policy {
		return false, err
	}
	// Only what a fair policy takes: a leftover real-time priority is EINVAL, and a runtime handed back would turn the
	// default slice into a custom one.
	next := unix.SchedAttr{
		Size:   attr.Size,
		Policy: uint32(policy),
		Flags:  attr.Flags & unix.SCHED_FLAG_RESET_ON_FORK,
		Nice:   attr.Nice,
	}
	return true, unix.SchedSetAttr(tid, &next, 0)
}
