// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/model/workload"
)

// StopContainer releases the container's CPUs and its part of the pod's sums; what others get back is written later.
func (p *Plugin) StopContainer(_ context.Context, sb *api.PodSandbox, ctr *api.Container) ([]*api.ContainerUpdate, error) {
	_, err := guard(p, call[struct{}]{
		event:   metrics.EventStopContainer,
		memory:  true,
		subject: subject(sb, ctr),
		work: func(context.Context) (struct{}, error) {
			p.stopped(ctr.GetId())
			return struct{}{}, nil
		},
	})
	return nil, err
}

// stopped marks a container as one without a cgroup.
func (p *Plugin) stopped(id string) {
	e, ok := p.reg.container(id)
	if !ok || e.c.State == workload.StateStopped {
		return
	}
	c := *e.c
	c.State, c.PID = workload.StateStopped, 0
	e.c = &c
	p.reg.putContainer(e)
	p.released(e)
}

// released follows the end of a container that e describes.
func (p *Plugin) released(e entry) {
	p.moves.forget(e.c.ID)
	if !e.lse.Empty() || !e.lsr.Empty() {
		p.publishClaims()
		p.repairSoon() // LS and BE widen again
	}
	p.settleSoon(e.sandbox)
	p.jobs.add(func(context.Context) { p.removeMon(e) })
}

// StopPodSandbox ends a pod: its containers are stopped, its protections no longer count.
func (p *Plugin) StopPodSandbox(_ context.Context, sb *api.PodSandbox) error {
	_, err := guard(p, call[struct{}]{
		event:   metrics.EventStopPodSandbox,
		memory:  true,
		subject: subject(sb, nil),
		work: func(context.Context) (struct{}, error) {
			p.reg.changePod(sb.GetId(), func(e *podEntry) { e.stopped = true })
			p.settleSoon(sb.GetId())
			return struct{}{}, nil
		},
	})
	return err
}
