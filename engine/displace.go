// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// moves are the displacements under way: an LSE or LSR container's CPUs being freed of LS and BE, from its creation to
// its start.
type moves struct {
	mu   sync.Mutex
	done map[string]chan struct{} // by the arriving container's id
}

func newMoves() *moves { return &moves{done: map[string]chan struct{}{}} }

// cpusetKnobs are the part of a plan that a displacement writes.
var cpusetKnobs = plan.KnobSet(plan.CPUSetCPUs, plan.CPUSetMems)

// start begins to move everybody else off the CPUs that container id claims. The View has the claim already.
func (m *moves) start(g *Engine, id string) {
	done := make(chan struct{})
	m.mu.Lock()
	m.done[id] = done
	m.mu.Unlock()
	ctx := g.ctx()
	go func() {
		defer close(done)
		g.shielded("displacement for "+id, func() { g.displace(ctx, id) })
	}()
}

// wait returns when the displacement for the container has ended, at the latest at until, and says whether it has. To start
// with a neighbour that leaves a moment later is better than not to start, unless the pod or the node sees that otherwise.
func (m *moves) wait(ctx context.Context, g *Engine, id string, until time.Time) bool {
	m.mu.Lock()
	done := m.done[id]
	m.mu.Unlock()
	if done == nil {
		return true
	}
	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	select {
	case <-done:
	case <-ctx.Done():
	case <-limit.C:
	}
	select {
	case <-done:
		m.ended(id, done)
		return true
	default:
		g.problemOf(id, g.containerName(id), "cpuset", "the claimed CPUs are still being freed at start")
		return false
	}
}

// ended forgets a displacement, unless there is another one for the container by now.
func (m *moves) ended(id string, done chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.done[id] == done {
		delete(m.done, id)
	}
}

// rename follows a container that has got its id.
func (m *moves) rename(from, to string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if done, ok := m.done[from]; ok {
		delete(m.done, from)
		m.done[to] = done
	}
}

func (m *moves) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.done, id)
}

// displace gives every other running container the cpuset that it has under the present View. Each is written by itself: none of their
// cgroups lies below another's, and one that is stuck behind a write that reclaims memory costs the others nothing.
func (g *Engine) displace(ctx context.Context, id string) {
	v := g.views.Load()
	items := g.reg.running()
	type move struct {
		c  *workload.Container
		pl plan.Plan
	}
	todo := make(chan move, len(items))
	for i := range items {
		if it := &items[i]; it.c.ID != id && ctx.Err() == nil {
			if pl := g.moved(v, it); len(pl) > 0 {
				todo <- move{it.c, pl}
			}
		}
	}
	close(todo)
	var wg sync.WaitGroup
	for range min(g.o.Workers, len(todo)) {
		wg.Go(func() {
			for m := range todo {
				wrote := false
				g.shielded("displacement for "+id, func() {
					g.writers.enter(m.c.ID)
					defer g.writers.leave(m.c.ID)
					if e, ok := g.reg.container(m.c.ID); ok && e.c == m.c { // else its handler has decided by this View or a newer one
						wrote = true
						g.count(g.write(ctx, v, m.pl))
					}
				})
				g.reg.changeContainer(m.c.ID, func(e *entry) {
					if e.gen = undecided; wrote { // whoever decides next must know what stands: the one it was written for may have gone by now
						e.plan = join(e.plan, m.pl)
					}
				})
			}
		})
	}
	wg.Wait()
	g.repairSoon() // stores the new plans, and writes what else the View has changed
}

// moved is what a View changes of a container's cpuset. A plan that a repair has stored may not be written yet.
func (g *Engine) moved(v *node.View, it *item) (out plan.Plan) {
	pl, ok := g.redecide(v, it.pod.p, it.c)
	if !ok {
		return nil
	}
	for i := range pl {
		s := &pl[i]
		if !cpusetKnobs.Has(s.Knob) || s.Observe {
			continue
		}
		if old := it.plan.Find(s.Target, s.Knob, s.Key); old == nil || old.Value != s.Value || !g.stands(s) {
			out = append(out, *s)
		}
	}
	return out
}

// stands reports that a planned value is in force: it was written last, or where that is not known the kernel is read to have it. Nobody is
// waited for.
func (g *Engine) stands(s *plan.Setting) bool {
	if last, ok := g.o.Kernel.Last(s.ID()); ok && last == s.Value {
		return true
	}
	return len(g.o.Kernel.Verify(plan.Plan{*s})) == 0
}
