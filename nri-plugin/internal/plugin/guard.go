// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/daemon/metrics"
)

// guarded states of one call. Exactly one side moves it away from running.
const (
	running int32 = iota
	finished
	abandoned
)

// call is one guarded event.
type call[T any] struct {
	event metrics.Event
	// subject is for logs: "default/web/app".
	subject string
	// work decides. Its context is the plugin's, not the request's.
	work func(ctx context.Context) (T, error)
	// memory says that work touches nothing but memory, behind locks that nobody holds over IO. It cannot be late unless
	// the whole process is, so it runs where it is: two switches between goroutines cost more than the work.
	memory bool
	// late is called from work's goroutine when its result came too late to be used; may be nil.
	late func()
}

// guard runs one event within the plugin's deadline. A runtime drops a plugin that exceeds its own (2 s), after which
// no container is managed at all; so a late, panicking or failing decision gives the zero reply — leave everything as
// requested — instead, and the repair loop brings the container to its plan afterwards. Only an error that work wraps in
// a refusal reaches the runtime: that is fail-closed.
func guard[T any](p *Plugin, c call[T]) (T, error) {
	start := p.o.Now()
	if c.memory {
		out := attempt(p, c)
		return settle(p, c, start, out.reply, out.err, out.panic)
	}
	var state atomic.Int32
	ch := make(chan outcome[T], 1)
	p.crew.do(func() {
		out := attempt(p, c)
		if !state.CompareAndSwap(running, finished) {
			if c.late != nil && out.panic == nil {
				c.late()
			}
			p.repairSoon()
			return
		}
		ch <- out
	})

	timer := time.NewTimer(time.Duration(p.deadline.Load()))
	defer timer.Stop()
	var zero T
	select {
	case out := <-ch:
		return settle(p, c, start, out.reply, out.err, out.panic)
	case <-timer.C:
	}
	if !state.CompareAndSwap(running, abandoned) {
		out := <-ch // finished in the last moment
		return settle(p, c, start, out.reply, out.err, out.panic)
	}
	p.m.Late(c.event)
	p.m.FailOpen(metrics.FailOpenDeadline)
	p.stats.late.Add(1)
	p.m.ObserveEvent(c.event, p.o.Now().Sub(start))
	p.log.Warn("decision is late, request goes on unchanged", "subject", c.subject, "deadline", time.Duration(p.deadline.Load()))
	return zero, nil
}

// outcome is what work gave.
type outcome[T any] struct {
	reply T
	err   error
	panic any
}

// attempt runs the work; a panic is part of the outcome.
func attempt[T any](p *Plugin, c call[T]) (out outcome[T]) {
	defer func() {
		if r := recover(); r != nil {
			out.panic = r
			p.log.Error("handler panicked", "subject", c.subject, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	out.reply, out.err = c.work(p.ctx())
	return out
}

// settle turns what work gave into the reply.
func settle[T any](p *Plugin, c call[T], start time.Time, reply T, err error, panicked any) (T, error) {
	p.m.ObserveEvent(c.event, p.o.Now().Sub(start))
	p.stats.lastEvent.Store(p.o.Now().UnixNano())
	var zero T
	switch {
	case panicked != nil:
		p.m.FailOpen(metrics.FailOpenPanic)
		p.stats.failOpen.Add(1)
		p.repairSoon()
		return zero, nil
	case err == nil:
		return reply, nil
	case isRefusal(err):
		return zero, err
	}
	p.m.FailOpen(metrics.FailOpenError)
	p.stats.failOpen.Add(1)
	p.log.Error("event failed, request goes on unchanged", "subject", c.subject, "err", err)
	return zero, nil
}
