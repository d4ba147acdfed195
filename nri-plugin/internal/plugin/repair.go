// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// repairSoon asks for a repair pass. Requests that come while one is waiting are one.
func (p *Plugin) repairSoon() {
	select {
	case p.repairs <- struct{}{}:
	default:
	}
}

// repairLoop brings everything to the View: after Synchronize, after a change of the View, and in intervals against
// drift (a daemon-reload, a runtime's update behind our back). It works outside the runtime's lock, by direct writes.
func (p *Plugin) repairLoop(ctx context.Context) {
	tick := time.NewTicker(p.o.Drift)
	defer tick.Stop()
	for {
		drift := false
		select {
		case <-ctx.Done():
			return
		case <-p.repairs:
		case <-tick.C:
			drift = true
		}
		start := p.o.Now()
		n := p.repairAll(ctx, drift)
		if n > 0 {
			p.log.Info("repaired", "settings", n, "drift", drift, "took", p.o.Now().Sub(start))
		}
	}
}

// repairAll brings groups, ancestors, pods and containers to the present View and returns how many values were written.
// All containers are decided first, because pods carry the sums of their containers.
func (p *Plugin) repairAll(ctx context.Context, drift bool) int {
	v := p.views.Load()
	todo := p.replan(v)
	n := p.repairGroups(ctx, v)
	for _, pod := range p.reg.podList() {
		if ctx.Err() != nil {
			return n
		}
		old := pod.plan
		pl := direct(withUndo(v, old, p.decidePod(v, pod.p.ID, pod.p), pod.p.Base))
		if len(pl) > 0 {
			n += p.count(p.write(ctx, v, pl))
		}
	}
	p.settleAncestors(ctx, v)
	n += p.repairContainers(ctx, v, todo, drift)
	if drift {
		p.sweepGroups(v)
	}
	return n
}

// work is one container with the plan it had and the one it has now.
type work struct {
	item
	next plan.Plan
}

// replan decides every container that was decided under an older View.
func (p *Plugin) replan(v *node.View) []work {
	items := p.reg.running()
	todo := make([]work, len(items))
	for i := range items {
		it := &items[i]
		todo[i] = work{item: *it, next: it.plan}
		if it.gen == v.Generation {
			continue
		}
		next := p.decide(v, it.pod.p, it.c)
		todo[i].next = next
		p.reg.changeContainer(it.c.ID, func(e *entry) {
			if e.c == it.c { // not updated or stopped meanwhile
				e.plan, e.gen = next, v.Generation
			}
		})
	}
	return todo
}

// repairContainers works on several containers at a time; the order does not matter, each has its own cgroup.
func (p *Plugin) repairContainers(ctx context.Context, v *node.View, todo []work, drift bool) int {
	var (
		wg   sync.WaitGroup
		next atomic.Int64
		sum  atomic.Int64
	)
	for range min(p.o.Workers, len(todo)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(todo) {
					return
				}
				sum.Add(int64(p.repair(ctx, v, &todo[i], drift)))
			}
		})
	}
	wg.Wait()
	return int(sum.Load())
}

// repair brings one container to the View. Apply reads before it writes, so a container that is as it should be costs
// a few reads.
func (p *Plugin) repair(ctx context.Context, v *node.View, w *work, drift bool) int {
	oldClass, oldMon := monOf(w.plan)
	if class, mon := monOf(w.next); class != oldClass || mon != oldMon {
		p.removeMon(w.entry)
	}
	pl := direct(withUndo(v, w.plan, w.next, w.c.Base))
	if len(pl) == 0 {
		return 0
	}
	if e, ok := p.reg.container(w.c.ID); !ok || e.c != w.c {
		if ok && e.gen != v.Generation {
			p.repairSoon()
		}
		return 0 // started, updated or stopped since it was listed: its handler has seen to it
	}
	results := p.write(ctx, v, pl)
	n := p.count(results)
	if drift && n > 0 && w.gen == v.Generation {
		for i := range results {
			if results[i].Outcome == apply.Written {
				p.m.Proof(results[i].Setting.Knob, metrics.ResultDrift)
			}
		}
	}
	return n
}
