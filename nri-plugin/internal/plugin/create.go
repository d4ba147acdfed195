// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// CreateContainer answers with the container's adjustment. What has no field in the spec waits for StartContainer.
func (p *Plugin) CreateContainer(_ context.Context, sb *api.PodSandbox, ctr *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	var c *workload.Container
	var creation *engine.Creation
	adj, err := engine.Guard(p.engine, engine.Call[*api.ContainerAdjustment]{
		Event:   metrics.EventCreateContainer,
		Subject: subject(sb, ctr),
		Before: func() bool {
			c = nri.Container(sb, ctr)
			creation = p.engine.Decide(sandboxOf(sb), c)
			return creation.InMemory()
		},
		Work: func(ctx context.Context) (adj *api.ContainerAdjustment, err error) {
			err = creation.Create(ctx, func(v *node.View, spec plan.Plan) (rest plan.Plan) {
				adj, rest = nri.Adjust(v, spec, c, p.o.Version)
				return rest
			})
			return adj, err
		},
		Late: func() { p.engine.CreatedLate(ctr.GetId()) },
	})
	return adj, nil, err
}
