// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// late waits for a call and says how it ended and after how long.
func late(c *guarded, began time.Time) (state int32, after time.Duration) {
	<-c.done
	return c.state.Load(), time.Since(began)
}

// Each call has its own time, although all share a timer: also one that came later, or with less time than the others.
func TestWatchEndsEachCallInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w watch
		began := time.Now()
		first := w.begin(time.Second)
		time.Sleep(300 * time.Millisecond)
		second := w.begin(time.Second)
		short := w.begin(100 * time.Millisecond)
		for _, tc := range []struct {
			name string
			call *guarded
			want time.Duration
		}{
			{"shorter", short, 400 * time.Millisecond}, {"first", first, time.Second}, {"later", second, 1300 * time.Millisecond},
		} {
			if state, after := late(tc.call, began); state != abandoned || after != tc.want {
				t.Errorf("%s: state %d after %v, want %v", tc.name, state, after, tc.want)
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.calls) != 0 {
			t.Errorf("%d calls are still watched", len(w.calls))
		}
	})
}

// A call that has finished is no longer watched and serves again; one that was abandoned does not: its work still has it.
func TestWatchKeepsFinishedCallsForReuse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w watch
		defer w.end()
		left := w.begin(time.Second)
		done := w.begin(2 * time.Second)
		if !done.leave(finished) {
			t.Fatal("a running call could not finish")
		}
		<-done.done
		w.finish(done)
		if state, _ := late(left, time.Now()); state != abandoned || left.leave(finished) {
			t.Errorf("state %d, and it could finish after that", state)
		}
		if again := w.begin(time.Second); again != done || again.state.Load() != running || len(again.done) != 0 {
			t.Errorf("next call %+v, want the finished one, running", again)
		}
		if next := w.begin(time.Second); next == left {
			t.Error("an abandoned call serves again")
		}
	})
}

// The timer goes on for a while after the last call and then stops; the next call starts it.
func TestWatchStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w watch
		defer w.end()
		runs := func() bool {
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return !w.rings.IsZero()
		}
		c := w.begin(time.Second)
		c.leave(finished)
		<-c.done
		w.finish(c)
		time.Sleep(time.Second + watchPause/2)
		if !runs() {
			t.Error("the timer has stopped at once")
		}
		time.Sleep(watchPause)
		if runs() {
			t.Error("the timer runs although nothing is to be watched")
		}
		began := time.Now()
		if state, after := late(w.begin(time.Second), began); state != abandoned || after != time.Second {
			t.Errorf("next call: state %d after %v", state, after)
		}
	})
}

// A crew's work runs at once, however much of it there is, and what waits is bounded and ends.
func TestCrew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c crew
		const n = 3 * idleHands
		for range 2 {
			begun, end := make(chan struct{}), make(chan struct{})
			for range n {
				c.do(func() { begun <- struct{}{}; <-end })
			}
			for range n {
				<-begun
			}
			close(end)
			synctest.Wait()
			c.mu.Lock()
			if len(c.idle) != idleHands {
				t.Errorf("%d wait for work, want %d", len(c.idle), idleHands)
			}
			c.mu.Unlock()
		}
		c.dismiss()
		done := make(chan struct{})
		c.do(func() { close(done) })
		<-done
	}) // synctest demands that every goroutine ends
}
