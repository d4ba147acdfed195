// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// UpdateContainer answers the kubelet's update (CPU manager, in-place resize) with the final values: what it asks
// becomes the new base, and the decision is taken again.
func (p *Plugin) UpdateContainer(_ context.Context, sb *api.PodSandbox, ctr *api.Container, r *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	u, err := guard(p, call[*api.ContainerUpdate]{
		event:   metrics.EventUpdateContainer,
		subject: subject(sb, ctr),
		work: func(ctx context.Context) (*api.ContainerUpdate, error) {
			return p.update(ctx, sb, ctr, r), nil
		},
		late: func() {
			// The runtime has applied the kubelet's values as they came.
			p.reg.changeContainer(ctr.GetId(), func(e *entry) { e.inSpec, e.mark = false, nil })
		},
	})
	if u == nil {
		return nil, err
	}
	return []*api.ContainerUpdate{u}, err
}

func (p *Plugin) update(ctx context.Context, sb *api.PodSandbox, ctr *api.Container, r *api.LinuxResources) *api.ContainerUpdate {
	pod := p.podOf(sb)
	e := p.entryOf(pod, sb, ctr)
	c := *e.c
	c.Base = nri.Overlay(e.c.Base, nri.Resources(r))
	v := p.views.Load()
	before, old := e.c.Base, e.plan
	e.c = &c
	e.plan, e.gen = p.decide(v, pod.p, &c), v.Generation
	full := withUndo(v, old, e.plan, c.Base)
	e.mark = p.markOf(v, full, &c)
	p.reg.putContainer(e) // before the burst falls: a repair that has listed the old plan must not raise it again
	p.lowerBurst(ctx, v, pod, old, full, r)
	if !v.Runtime.Fields.UpdatePod {
		p.shiftPod(pod.p, &before, &c.Base)
		p.checkPodLater(pod.p.ID) // the kubelet writes the pod's cgroup next, and nobody tells
	}
	p.settleSoon(e.sandbox)
	p.jobs.add(func(context.Context) { p.recordSpec(pod.p, &e) })
	return nri.Update(v, full, r, &c)
}

// lowerBurst makes room for a smaller quota: a quota below the burst that stands in the kernel is EINVAL, on the
// container and, when the kubelet follows, on the pod. The new bursts come with the reply and with the checks of the pod.
func (p *Plugin) lowerBurst(ctx context.Context, v *node.View, pod podEntry, old, next plan.Plan, r *api.LinuxResources) {
	if !v.Kernel.Has(plan.CPUBurst) || v.Ceded.Has(plan.CPUBurst) || !nri.Resources(r).Quota.Set {
		return
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
	if had := pod.plan.Get(plan.CPUBurst); had != nil && !had.Observe && len(pl) > 0 {
		pl = append(pl, lowered(*had, 0))
		p.checkPodLater(pod.p.ID)
	}
	if len(pl) > 0 {
		p.count(p.o.Kernel.Apply(ctx, pl, v.Generation))
	}
}

func lowered(s plan.Setting, burst int64) plan.Setting {
	s.Value, s.Owner = plan.Int(burst), protocol.FeatureBurst
	s.Reason = "lowered before a smaller quota: a quota below the burst is refused"
	return s
}

// shiftPod follows a container's resize in the pod's base, for runtimes that do not tell the pod's own: the kubelet
// changes the pod's cgroup by the same amount.
func (p *Plugin) shiftPod(pod *workload.Pod, before, after *workload.Resources) {
	next := *pod
	shift := func(sum *unit.Opt, a, b unit.Opt) {
		if sum.V > 0 && a.V > 0 && b.V > 0 {
			sum.V += b.V - a.V
		}
	}
	shift(&next.Base.Quota, before.Quota, after.Quota)
	shift(&next.Base.Shares, before.Shares, after.Shares)
	shift(&next.Base.MemoryLimit, before.MemoryLimit, after.MemoryLimit)
	p.reg.changePod(pod.ID, func(e *podEntry) { e.p = &next })
}

// PostUpdateContainer writes again what the update does not carry.
func (p *Plugin) PostUpdateContainer(_ context.Context, sb *api.PodSandbox, ctr *api.Container) error {
	_, err := guard(p, call[struct{}]{
		event:   metrics.EventPostUpdateContainer,
		subject: subject(sb, ctr),
		work: func(context.Context) (struct{}, error) {
			id := ctr.GetId()
			p.jobs.add(func(ctx context.Context) {
				if e, ok := p.reg.container(id); ok && e.c.State != workload.StateCreating {
					p.apply(ctx, p.views.Load(), e.plan)
				}
			})
			return struct{}{}, nil
		},
	})
	return err
}

// quotaOf is the quota that a plan gives, else the base's.
func quotaOf(pl plan.Plan, base *workload.Resources) unit.Opt {
	if s := pl.Get(plan.CPUQuota); s != nil && !s.Observe {
		return unit.Some(s.Value.Int())
	}
	return base.Quota
}
