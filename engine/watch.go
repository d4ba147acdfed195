// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"sync"
	"sync/atomic"
	"time"
)

// States of a guarded call. Exactly one side moves it away from running.
const (
	running int32 = iota
	finished
	abandoned
)

// guarded is one call that is being worked on.
type guarded struct {
	state atomic.Int32
	// done has a token when the work has finished or when its time is over, whichever came first.
	done chan struct{}
	// end is the moment from which on the call is late.
	end time.Time
	// at is the call's place among those that are watched.
	at int
}

// leave moves the call away from running and tells who waits; false when the other side was first.
func (c *guarded) leave(state int32) bool {
	if !c.state.CompareAndSwap(running, state) {
		return false
	}
	c.done <- struct{}{}
	return true
}

// watch ends the wait for calls that are late. All calls share one timer, which is left to run when a call has finished:
// to set a timer is to wake the thread that sleeps in the network poller, which takes longer than most calls.
type watch struct {
	mu    sync.Mutex
	calls []*guarded
	timer *time.Timer
	// rings is when the timer ends; zero while it does not run.
	rings time.Time
	// used: there has been a call since the timer ended last.
	used bool
	// free are calls that nobody holds any more, with their channels.
	free []*guarded
}

const (
	// freeCalls bounds what is kept for reuse.
	freeCalls = 64
	// watchPause is how long the timer goes on after a call, for the next one.
	watchPause = time.Second
)

// begin watches a new call that is late after limit.
func (w *watch) begin(limit time.Duration) *guarded {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	var c *guarded
	if n := len(w.free); n > 0 {
		c, w.free = w.free[n-1], w.free[:n-1]
		c.state.Store(running)
	} else {
		c = &guarded{done: make(chan struct{}, 1)}
	}
	c.end, c.at, w.used = now.Add(limit), len(w.calls), true
	w.calls = append(w.calls, c)
	if w.rings.IsZero() || c.end.Before(w.rings) {
		w.ring(c.end, limit)
	}
	return c
}

// serves reports that a call has not been answered yet.
func (w *watch) serves() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls) > 0
}

// ring has the timer end at a moment, which is d from now. The lock is held.
func (w *watch) ring(at time.Time, d time.Duration) {
	w.rings = at
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.look)
		return
	}
	w.timer.Reset(d)
}

// look abandons what is late. While calls keep coming the timer keeps running, so that none of them has to start it.
func (w *watch) look() {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	next := time.Time{}
	for i := len(w.calls) - 1; i >= 0; i-- {
		c := w.calls[i]
		switch {
		case now.Before(c.end):
			if next.IsZero() || c.end.Before(next) {
				next = c.end
			}
		case c.leave(abandoned):
			w.take(c)
		}
	}
	if next.IsZero() && w.used {
		next = now.Add(watchPause)
	}
	if w.used = false; next.IsZero() {
		w.rings = next
		return
	}
	w.ring(next, next.Sub(now))
}

// finish takes a call that has finished out and keeps it for another one.
func (w *watch) finish(c *guarded) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.take(c)
	if len(w.free) < freeCalls {
		w.free = append(w.free, c)
	}
}

// take closes the gap that a call leaves. The lock is held.
func (w *watch) take(c *guarded) {
	last := len(w.calls) - 1
	w.calls[c.at] = w.calls[last]
	w.calls[c.at].at = c.at
	w.calls[last] = nil
	w.calls = w.calls[:last]
}

// end stops the timer; a later call starts it again.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil && w.timer.Stop() {
		w.rings = time.Time{}
	}
}
