// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy

import (
	"context"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/mode"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/workload"
)

// update answers the kubelet's update with the final values. While our plugin is there it goes on as it came: NRI has no
// mark in an update, and the plugin would take our values for the kubelet's.
func (p *Proxy) update(ctx context.Context, msg []byte) (relay.Verdict, answered) {
	r, err := cri.ReadUpdateContainer(msg)
	if err != nil {
		return p.unread(metrics.EventUpdateContainer, err)
	}
	p.naming.wait(ctx, func() bool { _, _, ok := p.engine.Known(r.ID); return ok })
	pod, c, ok := p.engine.Known(r.ID)
	if !ok {
		return relay.Verdict{}, nil
	}
	sb := engine.Sandbox{ID: pod.ID, Read: func() *workload.Pod { return pod }}
	under := p.Updates.Begin(c) // ahead of the hooks, during which another update may come and be done
	asked := false
	defer func() {
		if !asked { // also after a panic
			under.Dropped(ctx)
		}
	}()
	foreign, err := p.Servers.Update(ctx, pod, c, mark.Overlay(c.Base, r.Stated()))
	if err != nil {
		return refuse(err), nil
	}
	if _, now, known := p.engine.Known(r.ID); known {
		under.Over(now)
	}
	asked = true
	out, err := engine.Guard(p.engine, engine.Call[[]byte]{
		Event:   metrics.EventUpdateContainer,
		Subject: pod.FullName() + "/" + c.Name,
		Work: func(ctx context.Context) ([]byte, error) {
			known := func(...*protocol.Applied) *workload.Container { return c }
			v, full, next := p.engine.Update(ctx, sb, engine.Arrival{ID: r.ID, Read: known}, r.Stated(), foreign)
			if p.o.Plugin() {
				full = foreign // the plugin decides on top of it
			}
			patch, _ := cri.Update(v, full, r, next, mode.By(v, p.o.Version))
			if patch == nil {
				return nil, nil
			}
			return r.Patch(patch)
		},
		Late: func() { p.engine.UpdatedLate(r.ID) },
	})
	if err != nil {
		under.Refused(ctx)
		return refuse(err), nil
	}
	return relay.Verdict{Message: out}, func(ctx context.Context, o outcome, _ relay.Result) {
		switch o {
		case done:
			under.Done(ctx)
		case refused:
			under.Refused(ctx)
		default:
			under.Lost(ctx)
			return // what is in force is not known
		}
		p.engine.Updated(ctx, r.ID)
	}
}
