// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"time"

	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Listed is one container of the runtime's list, with its sandbox's id.
type Listed struct {
	Sandbox string
	Arrival
}

// Roll is who was known at a moment, by the ids of sandboxes and containers; nil is whoever is known.
type Roll map[string]bool

// Roll is who is known now, also what is being created.
func (g *Engine) Roll() Roll { return g.reg.roll() }

// Synchronize replaces what is known by the runtime's list. It only collects; repairs follow as direct writes.
func (g *Engine) Synchronize(listed []*workload.Pod, containers []Listed) {
	g.SynchronizeSince(nil, listed, containers)
}

// SynchronizeSince is Synchronize with a list that was asked for while others tell of pods and containers, too. before is from ahead of
// the first question: what has come since stays as it was told, since the list may lack it, or show it as it was.
func (g *Engine) SynchronizeSince(before Roll, listed []*workload.Pod, containers []Listed) {
	pods := make([]podEntry, 0, len(listed))
	byID := make(map[string]podEntry, len(listed))
	for _, pod := range listed {
		e := g.listedPod(pod)
		g.problems(e.p, "", e.p.Problems)
		byID[pod.ID] = e
		pods = append(pods, e)
	}
	entries := make([]entry, 0, len(containers))
	for _, ctr := range containers {
		pod, ok := byID[ctr.Sandbox]
		if !ok {
			continue // its sandbox is gone: the runtime is about to remove it
		}
		e := g.adopt(pod, ctr.Sandbox, ctr.Arrival)
		if old, ok := g.reg.container(e.c.ID); ok {
			e.plan, e.rest, e.told, e.toldAt, e.record = old.plan, old.rest, old.told, old.toldAt, old.record
			e.rendered, e.inSpec, e.mark = old.rendered, old.inSpec, old.mark
			e.unmanaged, e.counted = old.unmanaged, old.counted
		}
		g.startContainer(pod.p, &e)
		e.inSpec = e.inSpec || e.c.Applied != nil
		entries = append(entries, e)
	}
	for i := range pods {
		if !pods[i].stopped {
			g.startPod(&pods[i])
		}
	}
	outlived(pods, entries)
	g.learnFormulaFrom(entries)
	gonePods, gone := g.reg.replace(before, pods, entries)
	g.reclaim()
	_, n := g.reg.counts()
	g.m.SetContainers(n)
	g.stats.lastSync.Store(g.o.Now().UnixNano())
	g.stats.tell()
	g.log.Info("synchronized", "pods", len(pods), "containers", len(entries), "gone", len(gone))
	g.jobs.add(func(context.Context) { g.vanished(gonePods, gone) })
	g.jobs.add(g.countUnmanaged)
	g.repairSoon()
	g.relistLater()
}

// vanished closes the books on what the list lacks. A list may lack what is being created, whose creation or start has taken it in
// again by now: its values stand, and the ledger still needs what stood there before them.
func (g *Engine) vanished(pods []podEntry, containers []entry) {
	for _, e := range containers {
		if _, back := g.reg.container(e.c.ID); !back {
			g.unexpect(&e)
			g.removeMon(e)
			g.recordGone(e.c.Target(&workload.Pod{}))
			g.stats.dropProof(e.c.ID)
		}
	}
	for _, e := range pods {
		if _, back := g.reg.pod(e.p.ID); !back {
			g.ended(e)
		}
	}
}

// countUnmanaged counts the containers that came without us although the plan would have changed them: each is a
// fail-open (D8), once, however often the runtime comes back.
func (g *Engine) countUnmanaged(ctx context.Context) {
	v := g.views.Load()
	n := 0
	for _, it := range g.reg.running() {
		if ctx.Err() != nil {
			return
		}
		if !it.unmanaged {
			continue
		}
		pl := it.plan
		if it.gen != v.Generation {
			pl = g.decide(v, it.pod.p, it.c)
		}
		if g.o.Edge.Mark(v, pl, it.c) == nil {
			continue
		}
		n++
		if it.counted {
			continue
		}
		g.reg.changeContainer(it.c.ID, func(e *entry) { e.counted = true })
		g.m.FailOpen(metrics.FailOpenUnmanaged)
		name := it.c.Target(it.pod.p).Name
		g.log.Warn("container was created without us, it is repaired as far as a running one can be", "container", name, "id", it.c.ID)
		g.recordProblem(name, metrics.FailOpenUnmanaged.String(), "created without us: repaired as far as a running one can be")
	}
	g.m.SetUnmanaged(n)
	g.stats.unmanaged.Store(int64(n))
}

// relistDelays are when the cgroups are searched for containers that the list of Synchronize missed: those whose
// creation was under way have started by then.
var relistDelays = [...]time.Duration{2 * time.Second, 15 * time.Second}

// roll lists every id.
func (r *registry) roll() Roll {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(Roll, len(r.pods)+len(r.containers))
	for id := range r.pods {
		out[id] = true
	}
	for id := range r.containers {
		out[id] = true
	}
	return out
}

// since reports an id that was not known then.
func (r Roll) since(id string) bool { return r != nil && !r[id] }

// replace puts the runtime's list in place of everything that was known before, and returns what is gone.
func (r *registry) replace(before Roll, pods []podEntry, containers []entry) (gonePods []podEntry, gone []entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation++
	oldPods, old := r.pods, r.containers
	r.pods, r.containers = make(map[string]podEntry, len(pods)), make(map[string]entry, len(containers))
	r.members = make(map[string][]string, len(pods))
	for _, e := range pods {
		if had, ok := oldPods[e.p.ID]; ok && before.since(e.p.ID) {
			had.inherit(&e) // what the ledger tells of a pod it tells once
			e = had
		}
		r.pods[e.p.ID] = e
	}
	for _, e := range containers {
		had, ok := old[e.c.ID]
		switch {
		case before != nil && !ok && r.gone.has(e.c.ID):
			continue // removed since it was listed
		case ok && before.since(e.c.ID):
			had.owe(e.plan)
			e = had
		case ok: // and may have been decided, and written, since the list was worked on
			e.plan, e.told = join(e.plan, had.plan), join(e.told, had.told)
			e.unmanaged, e.counted = had.unmanaged, had.counted
		}
		r.gone.forget(e.c.ID) // by a list that nothing else comes beside, it is there
		r.set(e)
	}
	gone = r.keepSince(before, oldPods, old)
	for id, e := range oldPods {
		if _, ok := r.pods[id]; !ok {
			gonePods = append(gonePods, e)
		}
	}
	return gonePods, gone
}

// keepSince puts back what has come since and is not listed, with the pods of such containers, and returns the containers that are gone.
// The lock is held.
func (r *registry) keepSince(before Roll, oldPods map[string]podEntry, old map[string]entry) (gone []entry) {
	keep := func(sandbox string) {
		if _, listed := r.pods[sandbox]; listed {
			return
		}
		if e, ok := oldPods[sandbox]; ok {
			r.pods[sandbox] = e
		}
	}
	for id := range oldPods {
		if before.since(id) {
			keep(id)
		}
	}
	for id, e := range old {
		_, listed := r.containers[id]
		switch {
		case listed:
		case before.since(id):
			r.set(e)
			keep(e.sandbox)
		default:
			gone = append(gone, e)
		}
	}
	return gone
}
