// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package doubt follows updates of containers whose answer may be lost, or that come beside another one of the same container: neither the
// values before nor those after such an update are believed until the runtime has told which it has.
//
// Inputs are the begin and the end of each update, and the runtime's record of a container; output is the base of the
// containers in the engine. It may import the engine, model and api/protocol; it knows no message of a runtime.
package doubt

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/workload"
)

const (
	// open is how long the runtime is asked again: it may still be at the update when the one who wanted it has gone.
	open = 10 * time.Second
	// maxStates bounds what one container may have; the oldest go first.
	maxStates = 8
)

// Read is a container as the runtime describes it, less what the marks, newest first, say is ours.
type Read = func(known ...*protocol.Applied) *workload.Container

// Options of Updates; all are required.
type Options struct {
	Engine *engine.Engine
	// Record asks the runtime about a container.
	Record func(ctx context.Context, id string) (Read, error)
	// Look is called when an answer was lost: the runtime may have gone.
	Look func()
}

// Updates are those under way and those in doubt. Its methods may be called from several goroutines.
type Updates struct {
	o Options

	mu   sync.Mutex
	byID map[string]*history
}

// history is one container's.
type history struct {
	// busy is how many updates are under way: their ends will say more than the runtime can now.
	busy int
	// begun counts the updates; those up to crossed that are still under way have had another one beside them.
	begun, crossed int
	// states are what the container may have beside what the engine believes, newest first; empty without a doubt.
	states []state
	since  time.Time
}

// state is what was asked for a container, with the marks that were known of it then.
type state struct {
	c     *workload.Container
	marks []*protocol.Applied
}

// New makes Updates.
func New(o Options) *Updates { return &Updates{o: o, byID: map[string]*history{}} }

// Update is one under way. Exactly one of its methods but Over is called, once. An end that leaves a doubt has the runtime asked.
type Update struct {
	of  *Updates
	id  string
	n   int // in the order of their beginnings
	was state
}

// Begin is called before the engine takes an update of a known container in.
func (u *Updates) Begin(c *workload.Container) *Update {
	u.mu.Lock()
	defer u.mu.Unlock()
	h := u.byID[c.ID]
	if h == nil {
		h = &history{}
		u.byID[c.ID] = h
	}
	h.busy++
	h.begun++
	if h.busy > 1 {
		h.crossed = h.begun
	}
	return &Update{of: u, id: c.ID, n: h.begun, was: state{c, u.o.Engine.Marked(c.ID)}}
}

// Over says what the update is built on, where that has changed since its beginning, as during a question to hook servers.
func (up *Update) Over(c *workload.Container) { up.was = state{c, up.of.o.Engine.Marked(c.ID)} }

// end closes the update and asks about what is in doubt.
func (up *Update) end(ctx context.Context, change func(h *history, alone bool)) {
	up.close(change)
	up.of.settle(ctx, up.id)
}

// close has change get the container's history, and whether no other update has been under way with this one. Of two that were,
// nobody knows here which of them the runtime has done last, nor what the one was built on.
func (up *Update) close(change func(h *history, alone bool)) {
	u := up.of
	u.mu.Lock()
	defer u.mu.Unlock()
	h := u.byID[up.id]
	h.busy--
	change(h, up.n > h.crossed)
	u.tidy(up.id, h)
}

func (u *Updates) tidy(id string, h *history) {
	if h.busy == 0 && len(h.states) == 0 {
		delete(u.byID, id)
	}
}

// Dropped says that neither the engine nor the runtime has got it.
func (up *Update) Dropped(ctx context.Context) { up.end(ctx, func(*history, bool) {}) }

// Done says that the runtime has done it. What was in doubt before is so still, since this one may have named other values.
func (up *Update) Done(ctx context.Context) {
	up.end(ctx, func(h *history, alone bool) {
		if !alone {
			h.doubt(up.was)
		}
	})
}

// Refused says that the runtime has not done it, so that the values before it stand, or what was in doubt before.
func (up *Update) Refused(ctx context.Context) {
	up.end(ctx, func(h *history, alone bool) {
		if alone {
			up.of.stands(up.was.c)
		} else {
			h.doubt(up.was)
		}
	})
}

// Lost says that there is no answer. The runtime is asked at once, and again by Settle.
func (up *Update) Lost(ctx context.Context) {
	up.of.o.Look()
	up.end(ctx, func(h *history, _ bool) { h.doubt(up.was) })
}

// doubt keeps what the container may have.
func (h *history) doubt(s state) {
	h.states = slices.Insert(h.states, 0, s)
	h.states = h.states[:min(len(h.states), maxStates)]
	h.since = time.Now()
}

// stands puts a container's base in place of what the engine believes.
func (u *Updates) stands(c *workload.Container) {
	if pod, _, known := u.o.Engine.Known(c.ID); known {
		u.o.Engine.UpdateRefused(engine.Sandbox{ID: pod.ID, Read: func() *workload.Pod { return pod }}, c)
	}
}

// Settle asks the runtime about all containers in doubt. It is to be called with each sign of life of the runtime.
func (u *Updates) Settle(ctx context.Context) {
	u.mu.Lock()
	ids := slices.Sorted(maps.Keys(u.byID))
	u.mu.Unlock()
	for _, id := range ids {
		if ctx.Err() == nil {
			u.settle(ctx, id)
		}
	}
}

// settle asks about one. A runtime that does not answer leaves it in doubt.
func (u *Updates) settle(ctx context.Context, id string) {
	u.mu.Lock()
	h := u.byID[id]
	if h == nil || h.busy > 0 || len(h.states) == 0 {
		u.mu.Unlock()
		return
	}
	begun, since := h.begun, h.since
	u.mu.Unlock()
	asked := time.Now()
	read, err := u.o.Record(ctx, id)
	if err != nil {
		u.o.Engine.Trouble(id, "update without an answer", err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byID[id] != h || h.begun != begun {
		return // a newer update may have come after this record, and its end asks anew
	}
	_, c, known := u.o.Engine.Known(id)
	if known && err == nil && c.State != workload.StateStopped {
		u.believe(ctx, c, h, read)
	}
	if !known || err == nil && asked.Sub(since) >= open {
		h.states = nil
		u.tidy(id, h)
	}
}

// believe puts the base that the runtime's record shows in place of the engine's, which c has, and has the kernel follow.
func (u *Updates) believe(ctx context.Context, c *workload.Container, h *history, read Read) {
	believed := state{c, u.o.Engine.Marked(c.ID)}
	now, ok := pick(append([]state{believed}, h.states...), read)
	if !ok {
		return
	}
	if now != c {
		// What was believed so far becomes one of the states that it may turn out to have after all.
		h.states = slices.Insert(h.states, 0, believed)
		h.states = h.states[:min(len(h.states), maxStates)]
		u.stands(now)
	}
	u.o.Engine.Updated(ctx, c.ID)
}

// pick is the container of the state that the record fits. A value of ours stands in the record for whatever was asked
// below it, so each state is held against the record as its own marks read it. A record that fits none has been changed by
// somebody else, or is between two: then it counts as the newest marks read it. ok is false for a record that says
// nothing of resources.
func pick(states []state, read Read) (c *workload.Container, ok bool) {
	for i := range states {
		rest := slices.Concat(states[:i], states[i+1:])
		marks := slices.Clone(states[i].marks)
		for _, s := range rest {
			marks = append(marks, s.marks...)
		}
		got := read(marks...)
		if i == 0 {
			if c, ok = between(states[0].c, got); !ok {
				return nil, false
			}
		}
		if same(&got.Base, &states[i].c.Base) {
			return states[i].c, true
		}
	}
	return c, true
}

// between is the container with the limits of the record; ok is false when that has none at all.
func between(believed, got *workload.Container) (c *workload.Container, ok bool) {
	b := &got.Base
	if !b.Shares.Set && !b.Quota.Set && !b.Period.Set && !b.MemoryLimit.Set && b.CPUs == "" && b.Mems == "" && len(b.Unified) == 0 {
		return nil, false
	}
	out := *believed
	out.Base = got.Base
	if !got.Base.OOMScoreAdj.Set {
		out.Base.OOMScoreAdj = believed.Base.OOMScoreAdj
	}
	if len(got.Base.Unified) == 0 {
		out.Base.Unified = believed.Base.Unified // not every runtime tells it
	}
	return &out, true
}

// same compares what updates change, got being the record's.
func same(got, b *workload.Resources) bool {
	return got.Shares == b.Shares && got.Quota == b.Quota && got.Period == b.Period && got.MemoryLimit == b.MemoryLimit &&
		got.CPUs == b.CPUs && got.Mems == b.Mems && (len(got.Unified) == 0 || maps.Equal(got.Unified, b.Unified))
}
