// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// PreparesInMemory is InMemory for Prepare, which asks who else is there when the pod demands a guarantee.
func (cr *Creation) PreparesInMemory() bool {
	return cr.InMemory() && demanded(cr.v, cr.pod).Empty()
}

// Prepare is Create where the runtime tells the container's id after it has made it: c.ID is a name of the caller's own,
// which Named or Dropped follows. A container whose pod demands a guarantee that could only be written after the start is
// refused: the caller has no moment between creation and the first instruction, unless somebody else does it then.
func (cr *Creation) Prepare(ctx context.Context, render Render) error {
	if err := cr.create(ctx, render); err != nil {
		return err
	}
	g := cr.g
	var r refusal
	must := demanded(g.views.Load(), cr.pod)
	for i := range cr.e.rest {
		if s := &cr.e.rest[i]; !s.Observe && must.Has(s.Owner) {
			r.reasons = append(r.reasons, s.Knob.String()+" ("+s.Owner.String()+") can only be set after the start over this way to the runtime")
		}
	}
	if len(r.reasons) == 0 || g.o.Beside != nil && g.o.Beside() {
		return nil
	}
	g.Dropped(cr.e.sandbox, cr.e.c.ID)
	return &r
}

// Named gives a prepared container the id and the cgroup that the runtime has given it. Values of variables, which may be
// secrets, are not kept beyond this.
func (g *Engine) Named(pending, id, dir string) {
	e, ok := g.reg.container(pending)
	if !ok {
		return // late, and forgotten since
	}
	pod, ok := g.reg.pod(e.sandbox)
	if !ok {
		g.Dropped(e.sandbox, pending)
		return
	}
	c := *e.c
	c.ID, c.Cgroup = id, dir
	c.Foreign = withoutSpecOnly(c.Foreign)
	t := c.Target(pod.p)
	e.c, e.plan, e.rest = &c, hidden(retarget(e.plan, t)), retarget(e.rest, t)
	g.moves.rename(pending, id)
	switch now, known, removed := g.reg.rename(pending, e); {
	case removed: // by a client that was quicker
		g.released(now)
	case known:
		g.created(pod.p, &e)
	}
}

// hidden takes the values out of a plan's variables; what stands in the specification stays there.
func hidden(p plan.Plan) plan.Plan {
	for i := range p {
		if p[i].Knob == plan.Env {
			p[i].Value = plan.Text("set")
		}
	}
	return p
}

// withoutSpecOnly is the part of a plan that concerns a container after its creation.
func withoutSpecOnly(p plan.Plan) plan.Plan {
	return slices.DeleteFunc(slices.Clone(p), func(s plan.Setting) bool { return mark.SpecOnly(s.Knob) })
}

// Dropped forgets a prepared container that the runtime has not made.
func (g *Engine) Dropped(sandbox, pending string) {
	if e, ok := g.reg.dropContainer(pending); ok && e.sandbox == sandbox {
		g.released(e)
	}
}

// retarget is the plan with another container as its target; settings of other levels stay.
func retarget(p plan.Plan, t plan.Target) plan.Plan {
	out := make(plan.Plan, len(p))
	for i, s := range p {
		if s.Target.Level == plan.LevelContainer {
			s.Target = t
		}
		out[i] = s
	}
	return out
}

// BeforeStart returns when nothing stands in the way of the container's first instruction any more: its pod's cgroup is
// as it should be, and the CPUs that it claims are free; at the latest after half the deadline.
func (g *Engine) BeforeStart(ctx context.Context, id string) {
	e, ok := g.reg.container(id)
	if !ok {
		return
	}
	g.ready(ctx, e.sandbox, id, 0, g.halfway())
}

// Known is a container of the registry with its pod; ok is false for one that is not known.
func (g *Engine) Known(id string) (*workload.Pod, *workload.Container, bool) {
	e, ok := g.reg.container(id)
	if !ok {
		return nil, nil, false
	}
	pod, ok := g.reg.pod(e.sandbox)
	return pod.p, e.c, ok
}

// KnownPod is a pod of the registry.
func (g *Engine) KnownPod(sandbox string) (*workload.Pod, bool) {
	e, ok := g.reg.pod(sandbox)
	return e.p, ok
}

// Refuses is the refusal of a pod whose guarantees this node cannot give, nil for every other.
func (g *Engine) Refuses(pod *workload.Pod) error { return g.unavailable(g.views.Load(), pod, nil) }

// Marked is what is known to stand in a container's specification of ours, newest first, and at its processes.
func (g *Engine) Marked(id string) []*protocol.Applied {
	return append(g.specified(id), g.past.Load().scored(id)...)
}

// specified is what is known to stand in a container's specification of ours, newest first.
func (g *Engine) specified(id string) []*protocol.Applied {
	known := g.past.Load().marks(id)
	if e, ok := g.reg.container(id); ok {
		if m := e.mark.get(); m != nil {
			known = append([]*protocol.Applied{m}, known...)
		}
	}
	return known
}

// IDs are the ids of the containers that are known and have one.
func (g *Engine) IDs() map[string]bool { return g.reg.ids() }

// PodIDs are the sandboxes that are known.
func (g *Engine) PodIDs() []string { return g.reg.podIDs() }

// Add takes in pods and containers that are not known yet, and containers that have started since; others stay as they are.
func (g *Engine) Add(pods []*workload.Pod, containers []Listed) {
	news := false
	var fresh []string
	byID := make(map[string]*workload.Pod, len(pods))
	for _, pod := range pods {
		byID[pod.ID] = pod
		if _, known := g.reg.pod(pod.ID); known {
			continue
		}
		g.problems(pod, "", pod.Problems)
		e := g.listedPod(pod)
		if g.o.Beside == nil || !g.o.Beside() { // who writes first gives back what is left, and the ledgers are of both
			g.startPod(&e)
		}
		if !g.reg.newPod(e) {
			continue
		}
		fresh, news = append(fresh, pod.ID), true
	}
	for _, ctr := range containers {
		pod := byID[ctr.Sandbox]
		if pod == nil {
			pod, _ = g.KnownPod(ctr.Sandbox)
		}
		old, known := g.reg.container(ctr.ID)
		if known && old.c.State != workload.StateCreating || pod == nil {
			continue
		}
		e := g.adopt(podEntry{p: pod}, ctr.Sandbox, ctr.Arrival)
		if known && e.c.State == workload.StateCreating {
			continue // no news
		}
		g.startContainer(pod, &e)
		e.inSpec = e.c.Applied != nil
		g.learnFormula(&e)
		if known {
			news = g.reg.swapContainer(&old, e) || news
			continue
		}
		_, first := g.reg.newContainer(e)
		news = first || news
	}
	for _, id := range fresh { // with what its containers need: what is left is not taken back from a sum that is not known yet
		g.settleSoon(id)
	}
	g.stats.lastSync.Store(g.o.Now().UnixNano())
	if news {
		g.reclaim()
		g.repairSoon()
	}
}
