// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"context"
	"errors"
	goruntime "runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
)

// What the part that needs memory only says and does: the work follows it, here or within the deadline; when it panics the
// request goes on as it came.
func TestGuardBefore(t *testing.T) {
	t.Parallel()
	replied := make(chan struct{})
	for name, tc := range map[string]struct {
		before   func() bool
		work     func() (string, error)
		want     string
		failOpen uint64
		late     uint64
	}{
		"all in memory": {before: func() bool { return true }, work: func() (string, error) { return "done", nil }, want: "done"},
		"not all":       {before: func() bool { return false }, work: func() (string, error) { return "done", nil }, want: "done"},
		"before panics": {before: func() bool { panic("no") }, work: func() (string, error) { return "done", nil }, failOpen: 1},
		"work panics":   {before: func() bool { return true }, work: func() (string, error) { panic("no") }, failOpen: 1},
		"work fails":    {before: func() bool { return false }, work: func() (string, error) { return "done", errors.New("no") }, failOpen: 1},
		"work is late":  {before: func() bool { return false }, work: func() (string, error) { <-replied; return "done", nil }, late: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 0)
			if tc.late > 0 {
				r.SetDeadline(20 * time.Millisecond)
			}
			began := false
			out, err := engine.Guard(r.Engine, engine.Call[string]{
				Event: metrics.EventCreateContainer, Subject: name,
				Before: func() bool { began = true; return tc.before() },
				Work: func(context.Context) (string, error) {
					if !began {
						t.Error("work without what comes before")
					}
					return tc.work()
				},
			})
			if tc.late > 0 {
				close(replied)
			}
			counters := r.Status().Counters
			if out != tc.want || err != nil || counters["failOpen"] != tc.failOpen || counters["late"] != tc.late {
				t.Errorf("%q, %v, counters %v", out, err, counters)
			}
		})
	}
}

// The guard itself costs no allocation where the work needs memory only, and few where it is handed on.
func TestGuardAllocations(t *testing.T) {
	r := newRig(t, 0)
	call := engine.Call[int]{
		Event: metrics.EventStopContainer, Subject: "x", Work: func(context.Context) (int, error) { return 1, nil },
	}
	run := func() {
		if _, err := engine.Guard(r.Engine, call); err != nil {
			t.Fatal(err)
		}
	}
	run() // the first one makes the goroutine and the timer
	if n := testing.AllocsPerRun(100, run); n > 3 {
		t.Errorf("%v allocations for work that is handed on", n)
	}
	call.Memory = true
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations for work in memory", n)
	}
}

// The stack of who has worked once is not made smaller while it waits, however often memory is collected: the next event would copy it back to its
// size. A copy is seen by a variable that has moved.
func TestGuardKeepsTheStack(t *testing.T) {
	r := newRig(t, 0)
	moved := func() bool {
		out, err := engine.Guard(r.Engine, engine.Call[bool]{
			Event: metrics.EventStopContainer, Subject: "x", Work: func(context.Context) (bool, error) {
				var here int
				before := uintptr(unsafe.Pointer(&here))
				deep(12)
				return uintptr(unsafe.Pointer(&here)) != before, nil
			},
		})
		must(t, err)
		return out
	}
	moved() // the first one grows it
	stayed := false
	for range 10 {
		time.Sleep(10 * time.Millisecond) // until it waits again; on a busy machine it may not yet
		for range 5 {
			goruntime.GC()
		}
		stayed = stayed || !moved()
	}
	if !stayed {
		t.Error("the stack was copied for each event, though the one before was like it")
	}
}

// deep uses so many kilobytes of stack.
//
//go:noinline
func deep(kilobytes int) byte {
	var frame [1000]byte
	frame[kilobytes] = byte(kilobytes)
	if kilobytes > 1 {
		frame[0] = deep(kilobytes - 1)
	}
	return frame[0] + frame[kilobytes]
}
