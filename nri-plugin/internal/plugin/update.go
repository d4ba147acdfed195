// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
)

// UpdateContainer answers the kubelet's update (CPU manager, in-place resize) with the final values.
func (p *Plugin) UpdateContainer(_ context.Context, sb *api.PodSandbox, ctr *api.Container, r *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	var resize *engine.Resize
	u, err := engine.Guard(p.engine, engine.Call[*api.ContainerUpdate]{
		Event:   metrics.EventUpdateContainer,
		Subject: subject(sb, ctr),
		Before: func() bool {
			resize = p.engine.DecideUpdate(sandboxOf(sb), arrivalOf(sb, ctr), nri.Resources(r), nil)
			return resize.InMemory()
		},
		Work: func(ctx context.Context) (*api.ContainerUpdate, error) {
			v, full, c := resize.Update(ctx)
			return nri.Update(v, full, r, c), nil
		},
		Late: func() { p.engine.UpdatedLate(ctr.GetId()) },
	})
	if u == nil {
		return nil, err
	}
	return []*api.ContainerUpdate{u}, err
}

// PostUpdateContainer writes again what the update does not carry.
func (p *Plugin) PostUpdateContainer(_ context.Context, sb *api.PodSandbox, ctr *api.Container) error {
	return p.quick(metrics.EventPostUpdateContainer, subject(sb, ctr), func(ctx context.Context) error {
		p.engine.Updated(ctx, ctr.GetId())
		return nil
	})
}
