// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package run_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// mayTune says whether CAP_SYS_NICE, which the timer slack of another thread needs, is in force (CapEff of /proc/self/status).
func mayTune(t *testing.T) bool {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nCapEff:")
	text, _, _ := strings.Cut(rest, "\n")
	effective, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return effective>>unix.CAP_SYS_NICE&1 == 1
}

// Every thread has the slack, and those that are made later, too. Without the capability it is a refusal that says so; CI has
// it.
func TestTuneTimers(t *testing.T) {
	if !mayTune(t) {
		if err := run.TuneTimers(time.Millisecond); !errors.Is(err, fs.ErrPermission) || os.Getenv("CI") != "" {
			t.Errorf("without CAP_SYS_NICE: %v", err)
		}
		return
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
		run.EachThread(t, func(tid int) {
			text, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/timerslack_ns")
			if err == nil && strings.TrimSpace(string(text)) != fmt.Sprint(want.Nanoseconds()) {
				t.Errorf("thread %d has %s ns, want %v", tid, text, want)
			}
		})
	}
}

// Every thread has the nice value, and those that are made later, too.
func TestPrioritise(t *testing.T) {
	if !mayTune(t) {
		if err := run.Prioritise(-10); !errors.Is(err, fs.ErrPermission) || os.Getenv("CI") != "" {
			t.Errorf("without CAP_SYS_NICE: %v", err)
		}
		return
	}
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := run.Prioritise(int(before.Nice)); err != nil {
			t.Error(err)
		}
	}()
	for _, nice := range []int32{-10, -5} {
		if err := run.Prioritise(int(nice)); err != nil {
			t.Fatal(err)
		}
		run.EachThread(t, func(tid int) {
			got, err := unix.SchedGetAttr(tid, 0)
			if errors.Is(err, unix.ESRCH) {
				return // it has ended
			}
			if err != nil || got.Nice != nice {
				t.Errorf("thread %d: %+v, %v; want nice %d", tid, got, err, nice)
			}
		})
	}
}
