// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// CreateContainer answers with the container's adjustment. What has no field in the spec waits for StartContainer.
func (p *Plugin) CreateContainer(_ context.Context, sb *api.PodSandbox, ctr *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	_, devices := sb.GetAnnotations()[protocol.AnnotationDeviceAllocated]
	adj, err := engine.Guard(p.engine, engine.Call[*api.ContainerAdjustment]{
		Event:   metrics.EventCreateContainer,
		Memory:  !p.engine.CreateReads(devices),
		Subject: subject(sb, ctr),
		Work: func(ctx context.Context) (adj *api.ContainerAdjustment, err error) {
			c := nri.Container(sb, ctr)
			err = p.engine.Create(ctx, sandboxOf(sb), c, func(v *node.View, spec plan.Plan) (rest plan.Plan) {
				adj, rest = nri.Adjust(v, spec, c, p.o.Version)
				return rest
			})
			return adj, err
		},
		Late: func() { p.engine.CreatedLate(ctr.GetId()) },
	})
	return adj, nil, err
}
