// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
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
	pod := g.podOf(sb)
	if g.o.UpdatesUntold {
		g.measure(pod.p.ID) // by what the containers had until now
	}
	var (
		e         entry
		v         *node.View
		before    workload.Resources
		old, full plan.Plan
	)
	for swapped := false; !swapped; {
		e = g.entryOf(pod, sb, ctr)
		was, c := e, *e.c
		v = g.views.Load()
		e.record = g.recorded(v, pod.p, &e)
		before, old = c.Base, join(e.stood(), e.record)
		c.Base, c.Foreign = mark.Overlay(before, asked), foreign
		e.c = &c
		e.plan, e.gen, e.rendered = g.decide(v, pod.p, &c), v.Generation, undecided
		full = withUndo(v, old, e.plan, c.Base)
		e.mark, e.told, e.record = g.markOf(v, full, &c), join(e.plan, old), join(e.record, inRecord(v, full))
		e.toldAt = g.o.Now()
		swapped = g.reg.swapContainer(&was, e) // before the burst falls: a repair that has listed the old plan must not raise it again
	}
	c := e.c
	g.recordSpec(&e, full) // before the runtime keeps it: a next life would take our values for the kubelet's
	if g.podUntold(v, &pod) {
		from := unmoved(before, c.Base, g.measure(pod.p.ID)) // what shifts is what stands
		g.shiftPod(pod.p.ID, &from, &c.Base)
		g.unsettled.quiet(ctx, pod.p.ID)
		g.checkPodLater(pod.p.ID) // the kubelet writes the pod's cgroup next, and nobody tells
	}
	g.writers.quiet(ctx, c.ID, g.halfway()) // who is at it may write the old burst
	if !g.lowerBurst(ctx, v, pod, old, full, before.Quota, asked.Quota) {
		g.settleSoon(e.sandbox)
	}
	return v, full, c
}

// UpdatedLate says that the runtime has applied the kubelet's values as they came, and nothing that was to be taken back with them.
func (g *Engine) UpdatedLate(id string) {
	g.reg.changeContainer(id, func(e *entry) { e.inSpec, e.mark = false, nil })
}

// UpdateRefused takes an update back that the runtime has refused: was is the container before it, whose values stand, and
// what hook servers wanted of it then.
func (g *Engine) UpdateRefused(sb Sandbox, was *workload.Container) {
	pod, v := g.podOf(sb), g.views.Load()
	var (
		e       entry
		refused workload.Resources
	)
	for swapped := false; !swapped; {
		var ok bool
		if e, ok = g.reg.container(was.ID); !ok {
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

// lowFor is how long a pod's burst stays away for a kubelet that tells of the pod behind its containers: each of them takes the runtime
// some tens of milliseconds, and more where many pods are resized at once. The last check gives it back to a pod that keeps its quota.
const lowFor = 2900 * time.Millisecond

// lowerBurst makes room for a smaller quota: a quota below the burst that stands in the kernel is EINVAL, on the
// container and, when the kubelet follows, on the pod. The new bursts come with the reply and with the checks of the pod. What
// stands is what the plans before this update have written, an earlier life's as well. The container's falls before the reply, since the
// runtime writes next; the pod's, where the kubelet can be held up, while the runtime does (lowerPod), since nobody writes there before that call is over. It reports whether
// the pod's stood and has to stay low: whoever settles the pod before the kubelet has told of its new quota would raise it to the old one's.
func (g *Engine) lowerBurst(ctx context.Context, v *node.View, pod podEntry, old, next plan.Plan, before, asked unit.Opt) (low bool) {
	if !v.Kernel.Has(plan.CPUBurst) || v.Ceded.Has(plan.CPUBurst) || !asked.Set {
		return false
	}
	var pl plan.Plan
	if had := old.Get(plan.CPUBurst); had != nil && !had.Observe {
		want := int64(0)
		if s := next.Get(plan.CPUBurst); s != nil && !s.Observe {
			want = s.Value.Int()
		}
		if want < had.Value.Int() {
			pl = append(pl, lowered(*had, want))
		}
	}
	if len(pl) == 0 && !falls(before, asked) {
		return false
	}
	told := !g.podUntold(v, &pod)
	if told {
		// Also where none stands yet: a pod whose containers have just started is about to get one, for its old quota.
		g.reg.changePod(pod.p.ID, func(e *podEntry) { e.lowUntil = g.o.Now().Add(lowFor) })
	}
	g.checkPodLater(pod.p.ID)
	had := pod.plan.Get(plan.CPUBurst)
	stands := had != nil && !had.Observe
	var podLow plan.Plan
	if stands {
		if last, ok := g.o.Kernel.Last(had.ID()); !ok || last.Int() > 0 { // the pod's other containers fall, too
			podLow = plan.Plan{lowered(*had, 0)}
		}
	}
	if !told || !g.o.UpdatesAwaited {
		pl, podLow = append(pl, podLow...), nil // nobody holds the kubelet up until it has fallen
	}
	if len(pl) > 0 {
		g.count(g.o.Kernel.Apply(ctx, pl, v.Generation))
	}
	if podLow != nil {
		g.lowerPod(ctx, pod.p.ID, podLow, v.Generation)
	}
	return stands
}

// lowerPod writes a pod's burst while the runtime is at work. Updated and UpdatePod wait for it: so it has fallen before the kubelet hears
// of either and goes on to the pod's quota.
func (g *Engine) lowerPod(ctx context.Context, sandbox string, low plan.Plan, gen uint64) {
	waiting, cancel := context.WithDeadline(ctx, g.halfway())
	defer cancel()
	for !g.unsettled.take(sandbox) { // who is at it may write an older decision
		if g.unsettled.quiet(waiting, sandbox); waiting.Err() != nil {
			g.count(g.o.Kernel.Apply(ctx, low, gen))
			return
		}
	}
	g.crew.do(func() {
		defer g.unsettled.release(sandbox)
		g.shielded("sandbox "+sandbox, func() { g.count(g.o.Kernel.Apply(g.ctx(), low, gen)) })
	})
}

func lowered(s plan.Setting, burst int64) plan.Setting {
	s.Value, s.Owner = plan.Int(burst), protocol.FeatureBurst
	s.Reason = "lowered before a smaller quota: a quota below the burst is refused"
	return s
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
