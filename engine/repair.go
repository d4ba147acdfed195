// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// undecided is the generation of what no View has decided.
const undecided = 0

// repairSoon asks for a repair pass over everything. Requests that come while one is waiting are one.
func (g *Engine) repairSoon() {
	g.whole.Store(true)
	g.repairNews()
}

// repairNews asks for a pass over what the present View decides anew.
func (g *Engine) repairNews() {
	select {
	case g.repairs <- struct{}{}:
	default:
	}
}

// Repair asks for a repair pass from outside: something else that kept the values has gone.
func (g *Engine) Repair() { g.repairSoon() }

// Learn replaces what is known of earlier writers' doings: another one has gone on writing since. It bears on containers that
// are taken in from now on; Synchronize takes all of them in. The resctrl groups that they made are ours to remove.
func (g *Engine) Learn(p *Past) {
	g.past.Store(p)
	g.groups.adopt(p.ownGroups())
}

// Mended takes in what a Kernel, to which the engine's plans were left, has written of them by itself: it counts as repaired
// drift, and the units follow. It returns how many values were written.
func (g *Engine) Mended(results []apply.Result) int {
	g.noteUnits(g.views.Load(), results)
	n := g.count(results)
	g.countDrift(results)
	return n
}

// countDrift counts what had to be written although it had been in force.
func (g *Engine) countDrift(results []apply.Result) {
	for i := range results {
		if results[i].Outcome == apply.Written {
			g.m.Proof(results[i].Setting.Knob, metrics.ResultDrift)
		}
	}
}

// repairLoop brings everything to the View: after Synchronize, after a change of the View, and in intervals against
// drift (a daemon-reload, a runtime's update behind our back). It works outside the runtime's lock, by direct writes.
func (g *Engine) repairLoop(ctx context.Context) {
	tick := time.NewTicker(g.o.Drift)
	defer tick.Stop()
	for {
		drift := false
		select {
		case <-ctx.Done():
			return
		case <-g.repairs:
		case <-tick.C:
			drift = true
		}
		g.shielded("repair", func() { g.repairPass(ctx, drift) })
		g.pulses.repair.rest()
	}
}

func (g *Engine) repairPass(ctx context.Context, drift bool) {
	start := g.o.Now()
	g.beat(&g.pulses.repair)
	n := g.repairAll(ctx, drift, g.whole.Swap(false) || drift)
	if n > 0 {
		g.log.Info("repaired", "settings", n, "drift", drift, "took", g.o.Now().Sub(start))
	}
}

// repairAll brings groups, ancestors, pods and containers to the present View and returns how many values were written.
// All containers are decided first, because pods carry the sums of their containers. Unless it is to look at the whole, it
// leaves alone whom what has changed does not bear on: the agent's dynamic state may change every second, and names a few.
func (g *Engine) repairAll(ctx context.Context, drift, whole bool) int {
	now := g.views.cur.Load()
	v := now.view
	n := 0
	if whole {
		n = g.repairGroups(ctx, v) // first: containers are decided by which of them are there
	}
	todo, concerned := g.replan(now)
	if !whole {
		todo = slices.DeleteFunc(todo, func(w work) bool { return !w.decided })
	}
	reach, above := reaches{of: now}, false
	p := g.pace()
	for _, pod := range g.reg.podList() {
		if ctx.Err() != nil {
			return n
		}
		if !whole && !concerned[pod.p.ID] && !reach.pod(&pod) {
			continue
		}
		p.step()
		g.beat(&g.pulses.repair)
		g.shielded(pod.p.FullName(), func() {
			wrote, changed := g.settleNow(ctx, pod.p.ID)
			n, above = n+wrote, above || changed
		})
	}
	if whole || above || len(todo) > 0 {
		g.settleAncestors(ctx, v)
	}
	n += g.repairContainers(ctx, v, todo, drift)
	if drift {
		g.sweepGroups(v)
		g.sweepMons()
		g.units.rouse() // what systemd has refused is tried again
	}
	if ctx.Err() == nil {
		g.repaired.Store(v.Generation)
	}
	return n
}

// Repaired is the generation of the View by which the last repair pass went that has ended, 0 before the first: whatever that View and those
// before it changed has been written, or left to who writes it, or has failed.
func (g *Engine) Repaired() uint64 { return g.repaired.Load() }

// Unlike reads back the plans of all that runs and returns what the kernel holds otherwise. It is for a program that writes by itself:
// one that leaves it to others may be told by them that they want something else.
func (g *Engine) Unlike() (bad []apply.Mismatch) {
	p := g.pace()
	read := func(pl plan.Plan) {
		p.step()
		for _, m := range g.o.Kernel.Verify(direct(pl)) {
			if !errors.Is(m.Err, apply.ErrGone) { // it has ended
				bad = append(bad, m)
			}
		}
	}
	for _, pod := range g.reg.podList() {
		read(pod.plan)
	}
	for _, it := range g.reg.running() {
		read(it.plan)
	}
	return bad
}

// work is one container with the plan it had and the one it has now; decided: that is anew.
type work struct {
	item
	next    plan.Plan
	decided bool
}

// replan decides every container that what has changed since it was decided can bear on; concerned are their sandboxes.
func (g *Engine) replan(now *published) (todo []work, concerned map[string]bool) {
	items, v := g.reg.running(), now.view
	todo, concerned = make([]work, len(items)), map[string]bool{}
	reach := reaches{of: now}
	p := g.pace()
	for i := range items {
		p.step()
		it := &items[i]
		todo[i] = work{item: *it, next: it.plan}
		if it.gen >= v.Generation {
			continue // also who was decided by a newer View, which this pass has come too late for
		}
		next := it.plan
		if reach.container(it) {
			var ok bool
			if next, ok = g.redecide(v, it.pod.p, it.c); !ok {
				continue
			}
			todo[i].next, todo[i].decided, concerned[it.sandbox] = next, true, true
		} else {
			todo[i].gen = v.Generation // as good as decided now
		}
		g.reg.changeContainer(it.c.ID, func(e *entry) {
			switch {
			case e.c != it.c: // updated or stopped meanwhile
			case todo[i].decided:
				todo[i].plan = join(it.plan, e.plan) // a displacement may have written meanwhile
				e.plan, e.gen = next, v.Generation
			case e.gen == it.gen:
				if e.rendered == e.gen {
					e.rendered = v.Generation
				}
				e.gen = v.Generation
			}
		})
	}
	return todo, concerned
}

// repairContainers works on several containers at a time; the order does not matter, each has its own cgroup.
func (g *Engine) repairContainers(ctx context.Context, v *node.View, todo []work, drift bool) int {
	var (
		wg   sync.WaitGroup
		next atomic.Int64
		sum  atomic.Int64
	)
	for range min(g.o.Workers, len(todo)) {
		wg.Go(func() {
			p := g.pace()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(todo) {
					return
				}
				p.step()
				sum.Add(int64(g.repairOne(ctx, v, &todo[i], drift)))
			}
		})
	}
	wg.Wait()
	return int(sum.Load())
}

// repairOne is repair, whose panic costs this container only.
func (g *Engine) repairOne(ctx context.Context, v *node.View, w *work, drift bool) (n int) {
	defer func() {
		if r := recover(); r != nil {
			g.panicked(w.pod.p.FullName(), r)
		}
	}()
	g.beat(&g.pulses.repair)
	if drift {
		g.refused(v, w)
	}
	if now, anew := g.overtaken(v, w, w.plan); anew != nil {
		v, w = now, anew
	}
	for w != nil && ctx.Err() == nil {
		n += g.repair(ctx, v, w, drift)
		v, w = g.overtaken(v, w, w.next)
	}
	return n
}

// overtaken is what a container needs by the present View beyond what it was decided to need by an older one, nil if that is nothing;
// stands is its plan until then. Who knows the present View, as a displacement does, may have written by it, before us or meanwhile: an
// older value must not stand in the end.
func (g *Engine) overtaken(v *node.View, w *work, stands plan.Plan) (*node.View, *work) {
	now := g.views.cur.Load()
	at := w.item
	at.gen = v.Generation
	if reach := (reaches{of: now}); now.view == v || !reach.container(&at) {
		return v, nil
	}
	next, ok := g.redecide(now.view, w.pod.p, w.c)
	if !ok || slices.Equal(next, w.next) {
		return v, nil
	}
	again := &work{item: w.item, next: next, decided: true}
	again.plan = stands
	g.reg.changeContainer(w.c.ID, func(e *entry) {
		if e.c == w.c {
			again.plan = join(stands, e.plan)
			e.plan, e.gen = next, now.view.Generation
		}
	})
	return now.view, again
}

// repair brings one container to the View. Apply reads before it writes, so a container that is as it should be costs
// a few reads.
func (g *Engine) repair(ctx context.Context, v *node.View, w *work, drift bool) int {
	oldClass, oldMon := monOf(w.plan)
	if class, mon := monOf(w.next); class != oldClass || mon != oldMon {
		g.removeMon(w.entry)
	}
	stood := w.stood()
	pl := direct(withUndo(v, stood, w.next, w.c.Base))
	if len(pl) == 0 && !g.o.UpdatesUntold {
		return 0
	}
	if !g.still(w) {
		return g.overhauled(ctx, v, w, stood)
	}
	untold, same := g.untold(), w.gen == v.Generation || slices.Equal(w.plan, w.next)
	if untold && (drift || !same) && g.strayed(w) && g.follow(ctx, w, stood) || len(pl) == 0 {
		return 0
	}
	results, still := g.writeListed(ctx, v, w, pl)
	if !still {
		return g.overhauled(ctx, v, w, stood)
	}
	n := g.count(results)
	if !g.still(w) { // nor during the writes: what is wanted now may have been written before
		if w.c.State == workload.StateCreated && gone(results) {
			g.awaits(w, stood)
		}
		wrote := w.entry
		wrote.plan = join(w.next, stood)
		g.catchUp(ctx, w.c, wrote)
		return n
	}
	if kept := notUndone(stood, w.next, results); len(kept) > 0 {
		g.reg.changeContainer(w.c.ID, func(e *entry) {
			if e.c == w.c {
				e.plan, e.gen = slices.Concat(e.plan, kept), undecided
			}
		})
	} else if len(w.told) > 0 && (g.o.UpdatesUntold || g.o.Now().Sub(w.toldAt) > answerLimit) {
		g.reg.changeContainer(w.c.ID, func(e *entry) {
			if e.c == w.c {
				e.told = nil // no answer of ours is under way
			}
		})
	}
	if w.c.State == workload.StateCreated && gone(results) {
		g.awaits(w, stood)
	}
	if drift && g.o.ExitsUntold && gone(results) {
		g.Ended(w.c)
	}
	if drift && n > 0 && w.gen == v.Generation {
		g.countDrift(results)
	}
	if untold && n > 0 && same {
		g.follow(ctx, w, nil) // what has just been undone may have been an update
	}
	return n
}

// still: nobody has started, updated or stopped a container since it was listed.
func (g *Engine) still(w *work) bool {
	e, ok := g.reg.container(w.c.ID)
	return ok && e.c == w.c
}

// writeListed writes what was decided for a container, if that is still what was listed.
func (g *Engine) writeListed(ctx context.Context, v *node.View, w *work, pl plan.Plan) (results []apply.Result, still bool) {
	g.writers.enter(w.c.ID)
	defer g.writers.leave(w.c.ID)
	if !g.still(w) {
		return nil, false
	}
	return g.write(ctx, v, pl), true
}

// overhauled is what becomes of the repair of a container that has been started, updated or stopped since it was listed: its handler sees to
// what is wanted, but knows only the plan that was decided here, not the one that stands.
func (g *Engine) overhauled(ctx context.Context, v *node.View, w *work, stood plan.Plan) int {
	g.writers.enter(w.c.ID)
	defer g.writers.leave(w.c.ID)
	e, ok := g.reg.container(w.c.ID)
	if ok && e.gen != v.Generation {
		g.repairSoon()
	}
	if !ok || e.c.State == workload.StateStopped {
		return 0
	}
	pl := direct(withUndo(v, stood, e.plan, e.c.Base)[len(e.plan):])
	if len(pl) == 0 {
		return 0
	}
	return g.count(g.write(ctx, v, pl))
}

// gone reports that the target of every setting has vanished.
func gone(results []apply.Result) bool {
	for i := range results {
		if results[i].Outcome != apply.Gone {
			return false
		}
	}
	return len(results) > 0
}

// awaits keeps what stood, and is not wanted any more, for who can take it back: the runtime has yet to make the container's cgroup, and
// writes then what its record has, or to say whose values stand.
func (g *Engine) awaits(w *work, stood plan.Plan) {
	g.reg.changeContainer(w.c.ID, func(e *entry) { e.told = join(e.told, join(e.plan, stood)[len(e.plan):]) })
}
