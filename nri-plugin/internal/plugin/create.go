// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/model/node"
)

// CreateContainer answers with the container's adjustment. What has no field in the spec waits for StartContainer; CPUs
// that the container claims begin to be freed at once.
func (p *Plugin) CreateContainer(_ context.Context, sb *api.PodSandbox, ctr *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	adj, err := guard(p, call[*api.ContainerAdjustment]{
		event:   metrics.EventCreateContainer,
		memory:  !p.o.Live.reads(p.views.Load(), sb),
		subject: subject(sb, ctr),
		work: func(ctx context.Context) (*api.ContainerAdjustment, error) {
			return p.create(ctx, sb, ctr)
		},
		late: func() {
			// The runtime has gone on without our reply: nothing of the plan stands in the spec.
			p.reg.changeContainer(ctr.GetId(), func(e *entry) { e.inSpec, e.mark, e.rest = false, nil, e.plan })
		},
	})
	return adj, nil, err
}

func (p *Plugin) create(ctx context.Context, sb *api.PodSandbox, ctr *api.Container) (*api.ContainerAdjustment, error) {
	pod := p.podOf(sb)
	c := nri.Container(sb, ctr)
	v := p.views.Load()
	if err := unavailable(p.views.States(), pod.p); err != nil {
		return nil, err
	}
	e := entry{c: c, sandbox: sb.GetId(), inSpec: true}
	p.claimed(v, pod.p, &e)
	e.plan, e.gen = p.decide(v, pod.p, c), v.Generation

	spec, held := p.o.Live.check(v, c, e.plan)
	if len(held) > 0 && v.Kernel.Cgroup == node.CgroupV1 {
		p.raisePod(ctx, e)
		spec, held = p.o.Live.check(v, c, e.plan)
	}
	adj, rest := nri.Adjust(v, spec, c, p.o.Version)
	e.rest = append(rest, held...)
	e.mark = p.markOf(v, spec, c)
	p.reg.addContainer(e)
	if !e.lse.Empty() || !e.lsr.Empty() {
		p.publishClaims()
		p.moves.start(p, c.ID)
	}
	p.settleSoon(e.sandbox)
	p.jobs.add(func(context.Context) {
		p.recordSpec(pod.p, &e)
		_, n := p.reg.counts()
		p.m.SetContainers(n)
	})
	return adj, nil
}

// raisePod writes the pod's cgroup before the container's spec can rely on it: on cgroup v1 a child's quota beyond its
// parent's, or CPUs that the parent lacks, make runc fail.
func (p *Plugin) raisePod(ctx context.Context, e entry) {
	p.reg.addContainer(e)
	p.settleSoon(e.sandbox)
	p.settled(ctx, e.sandbox)
}

// subject names a container for people.
func subject(sb *api.PodSandbox, ctr *api.Container) string {
	if ctr == nil {
		return sb.GetNamespace() + "/" + sb.GetName()
	}
	return sb.GetNamespace() + "/" + sb.GetName() + "/" + ctr.GetName()
}
