// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/workload"
)

// hello asks the runtime for its name and release.
func (p *Proxy) hello(ctx context.Context) error {
	v, err := p.o.List.Version(ctx)
	if err != nil {
		return err
	}
	r := cri.Runtime(v.Name, v.Version)
	p.runtime.Store(&v.Name)
	p.engine.Views().SetRuntime(r)
	p.o.Metrics.SetBuild(p.o.Version, v.Name, v.Version, "")
	p.o.Log.Info("connected to the runtime", "runtime", v.Name, "version", v.Version, "limits", r.Problems)
	return nil
}

// ping asks for a sign of life. With it come the containers that an update has left in doubt.
func (p *Proxy) ping(ctx context.Context) error {
	if _, err := p.o.List.Version(ctx); err != nil {
		return err
	}
	p.Updates.Settle(ctx)
	return nil
}

// list takes the runtime's lists in; after it, what an update has left in doubt is known.
func (p *Proxy) list(ctx context.Context, first bool) (missed bool, err error) {
	missed, err = p.lister.List(ctx, first)
	if err == nil && !first {
		p.Updates.Settle(ctx)
	}
	return missed, err
}

// Ended asks the runtime whether a container has ended; one that it does not know has.
func (p *Proxy) Ended(ctx context.Context, id string) (bool, error) {
	c, err := p.o.List.ContainerStatus(ctx, id)
	if errors.Is(err, cri.ErrNotFound) {
		return true, nil
	}
	return err == nil && c.State == workload.StateStopped, err
}

// takeIn takes one container in that started without being known, at the time at.
func (p *Proxy) takeIn(ctx context.Context, id string, at time.Time) {
	call, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	pod, _, err := p.o.List.Container(call, id)
	if err != nil {
		p.engine.Trouble(id, "container", err)
		return
	}
	l, err := p.lister.One(call, pod.ID, id)
	if err != nil {
		p.engine.Trouble(id, "container", err)
		return
	}
	p.engine.Add([]*workload.Pod{pod}, []engine.Listed{l})
	if pod, c, known := p.engine.Known(id); known {
		p.started(ctx, pod, c, pod.FullName()+"/"+c.Name, at) // a guarantee that is required must hold here, too
	}
}
