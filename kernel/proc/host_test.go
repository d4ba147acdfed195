// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

const host = FS("/proc")

// child starts a process that lives until the test ends.
func child(t *testing.T) int {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.StartProcess("/bin/cat", []string{"cat"}, &os.ProcAttr{Files: []*os.File{r}})
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	t.Cleanup(func() {
		w.Close()
		p.Wait() //nolint:errcheck // its exit says nothing
	})
	return p.Pid
}

func TestSchedPolicyKeepsNice(t *testing.T) {
	t.Parallel()
	pid := child(t)
	if err := unix.Setpriority(unix.PRIO_PROCESS, pid, 7); err != nil {
		t.Fatal(err)
	}
	for _, policy := range []int{SchedIdle, SchedBatch, SchedNormal} {
		if err := host.SetSchedPolicy(pid, policy); err != nil {
			t.Fatalf("policy %d: %v", policy, err)
		}
		if got, err := host.StatPolicy(pid); err != nil || got != policy {
			t.Errorf("/proc/PID/stat has policy %d, %v, want %d", got, err, policy)
		}
		if got, err := SchedPolicy(pid); err != nil || got != policy {
			t.Errorf("policy %d reads %d, %v", policy, got, err)
		}
		attr, err := unix.SchedGetAttr(pid, 0)
		if err != nil || attr.Nice != 7 {
			t.Errorf("nice under policy %d: %d, %v", policy, attr.Nice, err)
		}
	}
}

// Not parallel: it changes the threads of the test itself, and the runtime clones new ones meanwhile.
func TestSchedPolicyReachesEveryThread(t *testing.T) {
	self := os.Getpid()
	before, err := SchedPolicy(self)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.SetSchedPolicy(self, before); err != nil {
			t.Error(err)
		}
	})
	if err := host.SetSchedPolicy(self, SchedBatch); err != nil {
		t.Fatal(err)
	}
	tids, err := host.Threads(self)
	if err != nil || len(tids) < 2 {
		t.Fatalf("threads %v, %v", tids, err)
	}
	for _, tid := range tids {
		if got, err := SchedPolicy(tid); !errors.Is(err, unix.ESRCH) && (err != nil || got != SchedBatch) {
			t.Errorf("thread %d has policy %d, %v", tid, got, err)
		}
	}
}

func TestSchedPolicyRefuses(t *testing.T) {
	t.Parallel()
	for _, policy := range []int{1, 2, 4, 6, -1, 99} {
		if err := host.SetSchedPolicy(child(t), policy); err == nil {
			t.Errorf("policy %d was taken", policy)
		}
	}
	if err := host.SetSchedPolicy(1<<22+1, SchedIdle); !errors.Is(err, unix.ESRCH) {
		t.Errorf("no process: %v", err)
	}
}

func TestOOMScoreAdj(t *testing.T) {
	t.Parallel()
	pid := child(t)
	if err := host.SetOOMScoreAdj(pid, 321); err != nil {
		t.Fatal(err)
	}
	if got, err := host.OOMScoreAdj(pid); err != nil || got != 321 {
		t.Errorf("reads %d, %v", got, err)
	}
	if err := host.SetOOMScoreAdj(pid, 1001); err == nil {
		t.Error("1001 was taken")
	}
	if _, err := host.OOMScoreAdj(1<<22 + 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no process: %v", err)
	}
}

func TestHostTables(t *testing.T) {
	t.Parallel()
	if n, err := host.MemTotal(); err != nil || n < 64<<20 {
		t.Errorf("memory %d, %v", n, err)
	}
	m, err := host.Mounts()
	if err != nil || m.V2 == "" && len(m.V1) == 0 {
		t.Errorf("mounts %+v, %v", m, err)
	}
	a, errA := host.StartTime(os.Getpid())
	b, errB := host.StartTime(1)
	if errA != nil || errB != nil || a < b {
		t.Errorf("started at %d after init's %d: %v, %v", a, b, errA, errB)
	}
}

// TestCoreSchedKernel checks against the running kernel: with core scheduling the cookies are really shared, without it
// every operation is a typed refusal.
func TestCoreSchedKernel(t *testing.T) {
	t.Parallel()
	c := NewCoreSched(host)
	one, two, three := child(t), child(t), child(t)
	if err := CoreSchedSupported(); err != nil {
		var unsupported *UnsupportedError
		if !errors.As(err, &unsupported) || !errors.Is(err, errors.ErrUnsupported) {
			t.Fatalf("probe: %v", err)
		}
		if err := c.Assign("a", one); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("assign: %v", err)
		}
		if len(c.Groups()) != 0 {
			t.Errorf("groups %v after a refusal", c.Groups())
		}
		return
	}
	for group, pids := range map[string][]int{"a": {one, two}, "b": {three}} {
		for _, pid := range pids {
			if err := c.Assign(group, pid); err != nil {
				t.Fatal(err)
			}
		}
	}
	x, y, z := cookieOf(t, c, one), cookieOf(t, c, two), cookieOf(t, c, three)
	if x == 0 || x != y || z == 0 || z == x {
		t.Errorf("cookies %x %x %x", x, y, z)
	}
	if own := cookieOf(t, c, os.Getpid()); own != 0 {
		t.Errorf("the test itself has cookie %x", own)
	}
	if err := c.Clear(two); err != nil || cookieOf(t, c, two) != 0 {
		t.Errorf("clear: %v", err)
	}
}

func cookieOf(t *testing.T, c *CoreSched, pid int) uint64 {
	t.Helper()
	cookie, err := c.Cookie(pid)
	if err != nil {
		t.Fatal(err)
	}
	return cookie
}
