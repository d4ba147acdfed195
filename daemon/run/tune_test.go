// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package run_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/daemon/run"
)

func TestTuneProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	runtime.GOMAXPROCS(3)
	for _, tc := range []struct {
		env     string
		n, want int
	}{{"", 0, 3}, {"7", 1, 3}, {"", 1, 1}, {"", 2, 2}} {
		run.TuneProcessors(func(string) string { return tc.env }, tc.n)
		if got := runtime.GOMAXPROCS(0); got != tc.want {
			t.Errorf("GOMAXPROCS=%q, %d: %d processors, want %d", tc.env, tc.n, got, tc.want)
		}
	}
}

// Every thread has the slack, and those that are made later, too.
func TestTuneTimers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this needs CAP_SYS_NICE: root")
	}
	defer func() {
		if err := run.TuneTimers(50 * time.Microsecond); err != nil { // what the kernel gives
			t.Error(err)
		}
	}()
	for _, want := range []time.Duration{time.Millisecond, 2 * time.Millisecond} {
		if err := run.TuneTimers(want); err != nil {
			t.Fatal(err)
		}
		if err := run.TuneTimers(0); err != nil {
			t.Fatal(err)
		}
		locked := make(chan struct{})
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
			text, err := os.ReadFile("/proc/" + th.Name() + "/timerslack_ns")
			if err == nil && strings.TrimSpace(string(text)) != fmt.Sprint(want.Nanoseconds()) {
				t.Errorf("thread %s has %s ns, want %v", th.Name(), text, want)
			}
		}
		close(locked)
	}
}
