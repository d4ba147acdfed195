// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"slices"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Updated says that the runtime has written an update. What that does not carry is written again, and what it was answered with and
// has been decided away meanwhile is taken back.
func (g *Engine) Updated(id string) {
	was, ok := g.reg.container(id)
	if !ok {
		return
	}
	g.jobs.add(func(ctx context.Context) {
		var wrote plan.Plan
		for ctx.Err() == nil {
			e, ok := g.reg.container(id)
			if !ok || e.c != was.c || e.c.State == workload.StateCreating {
				return // the next update, or its start, sees to it
			}
			e.told = slices.Concat(e.told, wrote)
			v := g.views.Load()
			g.apply(ctx, v, withUndo(v, e.stood(), e.plan, e.c.Base))
			if g.reg.confirm(&e) {
				return
			}
			wrote = e.plan // who has decided since may have been quicker to write
		}
	})
}

// stood is the former plan of who takes back what is no longer wanted.
func (e *entry) stood() plan.Plan {
	out := e.plan
	for i := range e.told {
		if s := &e.told[i]; e.plan.Find(s.Target, s.Knob, s.Key) == nil {
			out = append(out[:len(out):len(out)], *s)
		}
	}
	return out
}

// confirm ends what e was told, unless something has changed since e was read.
func (r *registry) confirm(e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, ok := r.containers[e.c.ID]
	if !ok || !now.sameAs(e) {
		return false
	}
	now.told = nil
	r.containers[e.c.ID] = now
	return true
}
