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
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Every thread is in real time, those that are made later too; a thread that does not sleep has the kernel tell us, and then all of them share
// again with the nice value that they had. Where the kernel refuses, nothing has changed.
func TestRealTime(t *testing.T) {
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

	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan error, 1)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		WatchRealTime(ctx, func(_ string, err error) { told <- err })
	}()
	defer func() { cancel(); <-watching }()

	if err := realTime(40*time.Millisecond, time.Minute); err != nil {
		if !errors.Is(err, fs.ErrPermission) {
			t.Fatal(err)
		}
		t.Logf("refused here: %v", err)
		allHave(t, unix.SCHED_NORMAL, 0, nice)
		return
	}
	allHave(t, unix.SCHED_RR, realTimePriority, nice)
	stop := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		for {
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	select {
	case err := <-told:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("nobody was told of a thread that does not sleep")
	}
	close(stop)
	allHave(t, unix.SCHED_NORMAL, 0, nice)
}

// allHave looks at all threads of this process, among them some that were made just now.
func allHave(t *testing.T, policy, priority uint32, nice int) {
	t.Helper()
	locked := make(chan struct{})
	defer close(locked)
	for range 4 {
		go func() {
			runtime.LockOSThread() // a thread of its own, which ends with it
			<-locked
		}()
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil || len(threads) < 2 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, th := range threads {
		tid, err := strconv.Atoi(th.Name())
		if err != nil {
			t.Fatal(err)
		}
		attr, err := unix.SchedGetAttr(tid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		up, err2 := unix.Getpriority(unix.PRIO_PROCESS, tid)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if attr.Policy != policy || attr.Priority != priority || 20-up != nice {
			t.Errorf("thread %d has policy %d, priority %d, nice %d; want %d, %d, %d", tid, attr.Policy, attr.Priority, 20-up, policy, priority, nice)
		}
	}
}
