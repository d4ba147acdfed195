// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"time"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Update takes the kubelet's update of a container in (CPU manager, in-place resize): what it asks becomes the new base,
// and the decision is taken again; foreign is what hook servers want of the container from now on: what they wanted at
// its creation was an answer to other values. It returns the container and the whole plan for the edge to answer with: the final
// values, also those that take back what is no longer wanted.
func (g *Engine) Update(ctx context.Context, sb Sandbox, ctr Arrival, asked workload.Resources, foreign plan.Plan) (*node.View, plan.Plan, *workload.Container) {
	if g.o.UpdatesUntold {
		g.measure(g.podOf(sb).p.ID) // by what the containers had until now
	}
	return g.DecideUpdate(sb, ctr, asked, foreign).Update(ctx)
}

// Resize is an update that has been decided and is not promised yet.
type Resize struct {
	g *Engine
	v *node.View
	// pod is its sandbox, untold whether nobody tells what the kubelet writes there.
	pod    string
	untold bool
	was, c *workload.Container
	full   plan.Plan
	until  time.Time
	// records are what the runtime will keep of the answer, kept before it does: a next life would take our values for the kubelet's.
	records []journal.Record
	// falls is the container's burst where that stands in the way, or the pod's may; nil where neither does.
	falls *plan.Setting
}

// DecideUpdate decides a container anew out of memory alone. The decision counts from then on, and Update must follow.
func (g *Engine) DecideUpdate(sb Sandbox, ctr Arrival, asked workload.Resources, foreign plan.Plan) *Resize {
	u := &Resize{g: g, until: g.halfway()}
	if g.reg.removed(ctr.ID) {
		return u.ofNobody(ctr)
	}
	pod := g.podOf(sb)
	u.pod = pod.p.ID
	var e entry
	var old plan.Plan
	for swapped := false; !swapped; {
		e = g.entryOf(pod, sb, ctr)
		if g.reg.removed(ctr.ID) {
			return u.ofNobody(ctr)
		}
		was, c := e, *e.c
		u.v = g.views.Load()
		e.record = g.recorded(u.v, pod.p, &e)
		old = join(e.stood(), e.record)
		c.Base, c.Foreign = mark.Overlay(c.Base, asked), foreign
		u.was, u.c = e.c, &c
		if !g.o.UpdatesUntold {
			e.ask(u.was, u.c)
		}
		e.c = u.c
		e.plan, e.gen, e.rendered = g.decide(u.v, pod.p, u.c), u.v.Generation, undecided
		u.full = withUndo(u.v, old, e.plan, c.Base)
		e.mark, e.told, e.record = g.markOf(u.v, u.full, u.c), join(e.plan, old), join(e.record, inRecord(u.v, u.full))
		e.toldAt = g.o.Now()
		swapped = g.reg.swapContainer(&was, e) // before the burst falls: a repair that has listed the old plan must not raise it again
	}
	u.untold = g.podUntold(u.v, &pod)
	u.records = g.inSpec(&e, u.full)
	u.falls = g.mustFall(u.v, pod.p, u.c, old, u.full, u.was.Base.Quota, asked.Quota)
	return u
}

// ofNobody answers the update of a container that has been removed, about which the runtime will say so itself.
func (u *Resize) ofNobody(ctr Arrival) *Resize {
	c := ctr.Read()
	u.v, u.was, u.c = u.g.views.Load(), c, c
	return u
}

// InMemory reports whether nothing that Update still has to do can wait for a file or for somebody who is at one.
func (u *Resize) InMemory() bool { return len(u.records) == 0 && u.falls == nil && !u.untold }

// Update is the rest of Engine.Update.
func (u *Resize) Update(ctx context.Context) (*node.View, plan.Plan, *workload.Container) {
	g := u.g
	g.append(u.records...)
	if u.untold {
		from := unmoved(u.was.Base, u.c.Base, g.measure(u.pod)) // what shifts is what stands
		g.shiftPod(u.pod, &from, &u.c.Base)
		g.unsettled.quiet(ctx, u.pod, u.until)
		g.checkPodLater(u.pod) // the kubelet writes the pod's cgroup next, and nobody tells
	}
	if u.pod != "" && (u.falls == nil || !g.lowerBurst(ctx, u)) {
		g.settleSoon(u.pod)
	}
	return u.v, u.full, u.c
}

// UpdatedLate says that the runtime has applied the kubelet's values as they came, and nothing that was to be taken back with them.
func (g *Engine) UpdatedLate(id string) {
	g.reg.changeContainer(id, func(e *entry) { e.inSpec, e.mark = false, nil })
}

// UpdateRefused takes an update back that the runtime has refused: was is the container before it, whose values stand, and
// what hook servers wanted of it then.
func (g *Engine) UpdateRefused(sb Sandbox, was *workload.Container) { g.updateRefused(sb, was, nil) }

// updateRefused is UpdateRefused as long as the container is still what only says, nil for whatever it is.
func (g *Engine) updateRefused(sb Sandbox, was, only *workload.Container) {
	if _, known := g.reg.container(was.ID); !known {
		return // before its pod is put back, too
	}
	pod, v := g.podOf(sb), g.views.Load()
	var (
		e       entry
		refused workload.Resources
	)
	for swapped := false; !swapped; {
		var ok bool
		if e, ok = g.reg.container(was.ID); !ok || only != nil && e.c != only {
			return
		}
		now, c := e, *e.c
		refused = c.Base
		c.Base, c.Foreign = was.Base, was.Foreign
		e.told, e.toldAt = e.stood(), g.o.Now() // also what the refused answer was to take back
		e.c = &c
		e.plan, e.gen, e.rendered = g.decide(v, pod.p, &c), v.Generation, undecided
		e.mark = g.markOf(v, withUndo(v, now.plan, e.plan, c.Base), &c)
		swapped = g.reg.swapContainer(&now, e)
	}
	if g.podUntold(v, &pod) {
		g.shiftPod(pod.p.ID, &refused, &was.Base)
	}
	g.reg.changePod(pod.p.ID, func(e *podEntry) { e.lowUntil = time.Time{} })
	g.settleSoon(e.sandbox)
	g.jobs.add(func(context.Context) { g.recordSpec(&e, e.plan) })
}

// podUntold: nobody tells what the kubelet writes to the pod's cgroup in a resize. Over CRI a kubelet tells also where the runtime does
// not know the call; to shift the base then as well would count every step up twice. Who finds updates in the runtime's list is told of
// none, whatever that runtime could tell.
func (g *Engine) podUntold(v *node.View, pod *podEntry) bool {
	return g.o.UpdatesUntold || !v.Runtime.Fields.UpdatePod && !pod.told
}

// shiftPod follows a container's resize in the pod's base, for runtimes that do not tell the pod's own: the kubelet
// changes the pod's cgroup by the same amount. Two containers of one pod may be resized at once, so it is the present base that shifts.
func (g *Engine) shiftPod(sandbox string, before, after *workload.Resources) {
	shift := func(sum *unit.Opt, a, b unit.Opt) {
		if sum.V > 0 && a.V > 0 && b.V > 0 {
			sum.V += b.V - a.V
		}
	}
	g.reg.changePod(sandbox, func(e *podEntry) {
		if e.told {
			return // since the caller has looked
		}
		next := *e.p
		shift(&next.Base.Quota, before.Quota, after.Quota)
		shift(&next.Base.Shares, before.Shares, after.Shares)
		shift(&next.Base.MemoryLimit, before.MemoryLimit, after.MemoryLimit)
		// What has not shifted is still the kernel's to tell: the pod's limit has grown for all containers at once.
		e.unsure = e.unsure && sizeOf(&next.Base) == sizeOf(&e.p.Base)
		e.p, e.before = &next, nil
	})
}

// quotaOf is the quota that a plan gives, else the base's.
func quotaOf(pl plan.Plan, base *workload.Resources) unit.Opt {
	if s := pl.Get(plan.CPUQuota); s != nil && !s.Observe {
		return unit.Some(s.Value.Int())
	}
	return base.Quota
}
