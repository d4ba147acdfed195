// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// RemoveContainer forgets a container. The runtime sends it also for a container whose creation failed.
func (p *Plugin) RemoveContainer(_ context.Context, sb *api.PodSandbox, ctr *api.Container) error {
	_, err := guard(p, call[struct{}]{
		event:   metrics.EventRemoveContainer,
		memory:  true,
		subject: subject(sb, ctr),
		work: func(context.Context) (struct{}, error) {
			e, ok := p.reg.dropContainer(ctr.GetId())
			if !ok {
				return struct{}{}, nil
			}
			if e.c.State != workload.StateStopped {
				p.released(e)
			}
			p.forgotten(sb.GetId(), e)
			return struct{}{}, nil
		},
	})
	return err
}

// forgotten closes the ledger's books on a container.
func (p *Plugin) forgotten(sandbox string, e entry) {
	var pod workload.Pod
	if known, ok := p.reg.pod(sandbox); ok {
		pod = *known.p
	}
	p.jobs.add(func(context.Context) {
		p.recordGone(e.c.Target(&pod))
		p.stats.dropProof(e.c.ID)
		_, n := p.reg.counts()
		p.m.SetContainers(n)
	})
}

// RemovePodSandbox forgets a pod and removes its resctrl group, whose number others need.
func (p *Plugin) RemovePodSandbox(_ context.Context, sb *api.PodSandbox) error {
	_, err := guard(p, call[struct{}]{
		event:   metrics.EventRemovePodSandbox,
		memory:  true,
		subject: subject(sb, nil),
		work: func(context.Context) (struct{}, error) {
			pod, left, ok := p.reg.dropPod(sb.GetId())
			for _, e := range left {
				p.released(e)
			}
			if !ok {
				return struct{}{}, nil
			}
			p.jobs.add(func(ctx context.Context) {
				for _, e := range left {
					p.recordGone(e.c.Target(pod.p))
				}
				p.removeGroup(pod)
				p.recordGone(pod.p.Target())
				p.settleAncestors(ctx, p.views.Load())
			})
			return struct{}{}, nil
		},
	})
	return err
}

// removeGroup removes the pod's own resctrl group.
func (p *Plugin) removeGroup(e podEntry) {
	if e.group == "" || p.o.Groups == nil {
		return
	}
	if err := p.dropGroup(e.group); err != nil {
		p.problem(e.p.FullName(), "resctrl group "+e.group, err.Error())
	}
}

// removeMon removes the monitoring group that a container has left, unless another one is in it. A group that still has
// tasks gives them back to its control group.
func (p *Plugin) removeMon(e entry) {
	class, mon := monOf(e.plan)
	if mon == "" || p.o.Groups == nil {
		return
	}
	for _, it := range p.reg.running() {
		if c, m := monOf(it.plan); c == class && m == mon && it.c.ID != e.c.ID {
			return
		}
	}
	if err := p.o.Groups.RemoveMon(class, mon); err != nil {
		p.problem(e.c.Name, "resctrl monitoring group", err.Error())
	}
}

// monOf is a plan's monitoring group and the control group above it, "" for the root group.
func monOf(pl plan.Plan) (class, mon string) {
	s := pl.Get(plan.RDTMonGroup)
	if s == nil || s.Observe {
		return "", ""
	}
	if c := pl.Get(plan.RDTClass); c != nil {
		class = c.Value.String()
	}
	return class, s.Value.String()
}
