// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/koord-rt/koord-rt/daemon/metrics"
)

// Call is one guarded event.
type Call[T any] struct {
	Event metrics.Event
	// Subject is for logs: "default/web/app".
	Subject string
	// Work decides. Its context is the engine's, not the request's.
	Work func(ctx context.Context) (T, error)
	// Memory says that Work touches nothing but memory, behind locks that nobody holds over IO. It cannot be late unless
	// the whole process is, so it runs where it is: two switches between goroutines cost more than the work.
	Memory bool
	// Before is the part of the work that needs memory only, done where Guard was called; it says whether that is true of
	// Work as well. It may be nil.
	Before func() (memory bool)
	// Late is called from Work's goroutine when its result came too late to be used; may be nil.
	Late func()
	// Closed is asked when Work is late, panics or fails, and why: its error is the refusal of a request that must not go on
	// without the work, nil lets it go on. It needs memory only. Nil for an event at which nothing is refused for that.
	Closed func(why string) error
}

// Guard runs one event within the plugin's deadline. A runtime drops a plugin that exceeds its own (2 s), after which
// no container is managed at all; so a late, panicking or failing decision gives the zero reply — leave everything as
// requested — instead, and the repair loop brings the container to its plan afterwards. Only an error that Work wraps in
// a refusal, or that Closed gives in its place, reaches the runtime: that is fail-closed.
func Guard[T any](g *Engine, c Call[T]) (T, error) {
	start := g.o.Now()
	if c.Before != nil {
		out := attempt(g, c.Subject, func(context.Context) (bool, error) { return c.Before(), nil })
		if out.panic != nil {
			return settle(g, c, start, outcome[T]{panic: out.panic})
		}
		c.Memory = out.reply
	}
	if c.Memory {
		return settle(g, c, start, attempt(g, c.Subject, c.Work))
	}
	return watched(g, c, start)
}

// watched has the work done by somebody else and waits as long as it may.
func watched[T any](g *Engine, c Call[T], start time.Time) (T, error) {
	limit := time.Duration(g.deadline.Load())
	call := g.watch.begin(limit)
	out := new(outcome[T]) // belongs to Work until it has left running
	g.crew.do(func() {
		*out = attempt(g, c.Subject, c.Work)
		if call.leave(finished) {
			return
		}
		if c.Late != nil && out.panic == nil {
			g.shielded(c.Subject, c.Late)
		}
		g.repairSoon()
	})
	<-call.done
	if call.state.Load() == finished {
		g.watch.finish(call)
		return settle(g, c, start, *out)
	}
	g.m.Late(c.Event)
	g.stats.late.Add(1)
	g.m.ObserveEvent(c.Event, g.o.Now().Sub(start))
	g.log.Warn("decision is late", "subject", c.Subject, "deadline", limit)
	return unanswered(g, c, metrics.FailOpenDeadline, "decision is late")
}

// unanswered is the reply where the work has given none: the request goes on as it came, unless it must not.
func unanswered[T any](g *Engine, c Call[T], as metrics.FailOpen, why string) (T, error) {
	var zero T
	if err := g.closes(c.Subject, c.Closed, why); err != nil {
		g.log.Warn("request is refused", "subject", c.Subject, "err", err)
		g.note(c.Event, c.Subject, why+": refused, the pod or the node demands proof")
		return zero, err
	}
	g.m.FailOpen(as)
	if as != metrics.FailOpenDeadline { // which is counted as late
		g.stats.failOpen.Add(1)
	}
	g.wentOn(c.Event, c.Subject, why)
	return zero, nil
}

// closes asks a call's Closed. One that panics refuses nothing.
func (g *Engine) closes(subject string, closed func(why string) error, why string) (err error) {
	if closed == nil {
		return nil
	}
	defer g.caught(subject)
	return closed(why)
}

// outcome is what work gave.
type outcome[T any] struct {
	reply T
	err   error
	panic any
}

// attempt runs the work; a panic is part of the outcome.
func attempt[T any](g *Engine, subject string, work func(context.Context) (T, error)) (out outcome[T]) {
	defer func() {
		if r := recover(); r != nil {
			out.panic = r
			g.log.Error("handler panicked", "subject", subject, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	out.reply, out.err = work(g.ctx())
	return out
}

// settle turns what work gave into the reply.
func settle[T any](g *Engine, c Call[T], start time.Time, out outcome[T]) (T, error) {
	now := g.o.Now()
	g.m.ObserveEvent(c.Event, now.Sub(start))
	g.stats.lastEvent.Store(now.UnixNano())
	var zero T
	switch {
	case out.panic != nil:
		g.repairSoon()
		return unanswered(g, c, metrics.FailOpenPanic, "decision panicked")
	case out.err == nil:
		return out.reply, nil
	case isRefusal(out.err):
		return zero, out.err
	}
	g.log.Error("event failed", "subject", c.Subject, "err", out.err)
	return unanswered(g, c, metrics.FailOpenError, reason(out.err))
}

// wentOn keeps in ledger and status that a request went on as it came.
func (g *Engine) wentOn(event metrics.Event, subject, why string) {
	g.note(event, subject, why+": the request went on as it came")
}

// note keeps in ledger and status what became of a request, each subject and text once in a while.
func (g *Engine) note(event metrics.Event, subject, text string) {
	if ok, _ := g.limiter.Allow(subject, event.String()+": "+text); !ok {
		return
	}
	g.stats.keepProblem(g.o.Now(), subject, event.String(), text)
	g.recordProblem(subject, event.String(), text)
}

// Unread reports a request that cannot be decoded. It goes on as it came: the runtime's own error says more.
func (g *Engine) Unread(event metrics.Event, why string) {
	g.m.FailOpen(metrics.FailOpenError)
	g.stats.failOpen.Add(1)
	g.wentOn(event, "runtime", why)
}
