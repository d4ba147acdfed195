// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package run

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Every thread is in real time, those that are made later too; a thread that does not sleep has the kernel tell us, and then all of them share
// again with the nice value that they had. Where the kernel refuses, nothing has changed.
func TestRealTime(t *testing.T) {
	inRealTime(t, time.Hour, "without sleeping", func(stop *atomic.Bool) {
		for !stop.Load() {
		}
	})
}

// With one processor for Go code, two threads that never have enough take turns, and each sleeps while the other one works.
func TestThreadsThatTakeTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	inRealTime(t, 300*time.Millisecond, "processor time in", func(stop *atomic.Bool) {
		runtime.LockOSThread() // it gives its processor up every ten milliseconds, and sleeps until it has it again
		for !stop.Load() {
		}
	})
}

// inRealTime has the process in real time while work goes on, until somebody tells why that has ended.
func inRealTime(t *testing.T, every time.Duration, want string, work func(stop *atomic.Bool)) {
	t.Helper()
	t.Cleanup(func() { // the limit stays: it is nothing to a thread that shares
		if err := Share(); err != nil {
			t.Error(err)
		}
	})
	const nice = 3 // nobody needs a capability for it
	if err := Prioritise(nice); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Prioritise(0); err != nil && !errors.Is(err, fs.ErrPermission) {
			t.Error(err)
		}
	})
	if err := realTime(40*time.Millisecond, time.Minute); err != nil {
		if !errors.Is(err, fs.ErrPermission) {
			t.Fatal(err)
		}
		t.Logf("refused here: %v", err)
		allHave(t, unix.SCHED_NORMAL, 0, nice)
		return
	}
	allHave(t, unix.SCHED_RR, realTimePriority, nice)

	ctx, cancel := context.WithCancel(t.Context())
	type word struct {
		why string
		err error
	}
	told := make(chan word, 1)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		watchRealTime(ctx, every, func(why string, err error) { told <- word{why, err} })
	}()
	defer func() { cancel(); <-watching }()
	var stop atomic.Bool
	go work(&stop)
	select {
	case w := <-told:
		if w.err != nil || !strings.Contains(w.why, want) {
			t.Errorf("told %q, %v; want %q", w.why, w.err, want)
		}
	case <-time.After(time.Minute):
		t.Error("nobody was told of work that does not end")
	}
	stop.Store(true)
	allHave(t, unix.SCHED_NORMAL, 0, nice)
}

// allHave looks at each thread. The Go runtime's own always shares.
func allHave(t *testing.T, policy, priority uint32, nice int) {
	t.Helper()
	own, err := runtimesOwn()
	if err != nil {
		t.Fatal(err)
	}
	EachThread(t, func(tid int) {
		attr, err := unix.SchedGetAttr(tid, 0)
		if errors.Is(err, unix.ESRCH) {
			return // it has ended
		}
		up, err2 := unix.Getpriority(unix.PRIO_PROCESS, tid)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		policy, priority := policy, priority
		if tid == own {
			policy, priority = unix.SCHED_NORMAL, 0
		}
		if attr.Policy != policy || attr.Priority != priority || 20-up != nice {
			t.Errorf("thread %d has policy %d, priority %d, nice %d; want %d, %d, %d", tid, attr.Policy, attr.Priority, 20-up, policy, priority, nice)
		}
	})
}

// The thread that is left without real time is the one that wakes by itself, and often, while Go code runs and no other has anything to do.
func TestRuntimesOwnThread(t *testing.T) {
	own, err := runtimesOwn()
	if err != nil {
		t.Fatal(err)
	}
	slept := func() int {
		text, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(own) + "/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		line, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := slept()
	for end := time.Now().Add(time.Minute); slept() < before+20; { // one whose goroutine runs does not sleep, and others sleep on
		if time.Now().After(end) {
			t.Fatalf("thread %d has slept %d times", own, slept()-before)
		}
	}
}
