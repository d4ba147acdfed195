// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockerproxy

import (
	"context"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/workload"
)

// update answers the client's update with the final values.
func (p *Proxy) update(ctx context.Context, c *docker.Call) ([]byte, error) {
	if _, err := p.askContainer(ctx, hook.PreUpdateContainerResources, c.Pod, c.Container); err != nil {
		return nil, err
	}
	if _, was, ok := p.engine.Known(c.ID); ok {
		c.State = was
	}
	return engine.Guard(p.engine, engine.Call[[]byte]{
		Event: metrics.EventUpdateContainer, Subject: subject(c),
		Work: func(ctx context.Context) ([]byte, error) {
			v, full, _ := p.engine.Update(ctx, sandbox(c.Pod), arrival(c), c.Update.Base(workload.Resources{}), nil)
			body, _, err := c.Update.Apply(v, full, c.Current)
			if err != nil {
				p.engine.UpdatedLate(c.ID)
			}
			return body, err
		},
		Late: func() { p.engine.UpdatedLate(c.ID) },
	})
}

// updated writes again what an update does not carry, and takes back one that the daemon has refused.
func (p *Proxy) updated(c *docker.Call, o docker.Outcome) {
	if was, ok := c.State.(*workload.Container); ok && !o.OK() {
		p.engine.UpdateRefused(sandbox(c.Pod), was)
	}
	p.engine.Updated(c.ID)
}
