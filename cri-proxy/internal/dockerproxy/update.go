// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockerproxy

import (
	"context"

	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/doubt"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// update answers the client's update with the final values.
func (p *Proxy) update(ctx context.Context, c *docker.Call) ([]byte, error) {
	w := c.Container
	if _, known, ok := p.engine.Known(c.ID); ok {
		w = known // what the daemon has of the base may be ours
		c.State = p.Updates.Begin(known)
	}
	asked := false
	defer func() {
		if under, ok := c.State.(*doubt.Update); ok && !asked { // also after a panic
			under.Dropped(ctx)
			c.State = nil
		}
	}()
	foreign, err := p.Servers.Update(ctx, c.Pod, w, c.Update.Base(w.Base))
	if err != nil {
		return nil, err
	}
	if under, ok := c.State.(*doubt.Update); ok {
		if _, now, known := p.engine.Known(c.ID); known {
			under.Over(now)
		}
	}
	asked = true
	body, err := engine.Guard(p.engine, engine.Call[[]byte]{
		Event: metrics.EventUpdateContainer, Subject: subject(c),
		Work: func(ctx context.Context) ([]byte, error) { return p.updateBody(ctx, c, foreign) },
		Late: func() { p.engine.UpdatedLate(c.ID) },
	})
	return body, p.without(ctx, c, err)
}

func (p *Proxy) updateBody(ctx context.Context, c *docker.Call, foreign plan.Plan) ([]byte, error) {
	v, full, _ := p.engine.Update(ctx, sandbox(c.Pod), arrival(c), c.Update.Base(workload.Resources{}), foreign)
	body, _, err := c.Update.Apply(v, full, c.Current)
	if err != nil {
		p.engine.UpdatedLate(c.ID)
	}
	return body, err
}

// without ends an update that the daemon does not get.
func (p *Proxy) without(ctx context.Context, c *docker.Call, err error) error {
	if under, ok := c.State.(*doubt.Update); ok && err != nil {
		under.Refused(ctx)
		c.State = nil
	}
	return err
}

// updated writes again what an update does not carry. One that the daemon has refused is taken back; without an answer the
// daemon is asked what the container has.
func (p *Proxy) updated(ctx context.Context, c *docker.Call, o docker.Outcome) {
	under, ok := c.State.(*doubt.Update)
	switch {
	case !ok:
	case o.Err != nil:
		under.Lost(ctx)
		return
	case o.OK():
		under.Done(ctx)
	default:
		under.Refused(ctx)
	}
	p.engine.Updated(ctx, c.ID)
}
