// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy

import (
	"context"
	"time"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/workload"
)

// stopLimit bounds the call that ends a container whose guarantee does not hold.
const stopLimit = 10 * time.Second

// start lets the container go when its pod's cgroup is in force and the CPUs that it claims are free. The runtime makes the
// cgroup during this call, so what the request could not carry is written right after it.
func (p *Proxy) start(ctx context.Context, msg []byte) (relay.Verdict, answered) {
	id, err := cri.ReadID(msg)
	if err != nil {
		return p.unread(metrics.EventStartContainer, err)
	}
	p.naming.wait(ctx, func() bool { _, _, ok := p.engine.Known(id); return ok })
	pod, c, ok := p.engine.Known(id)
	if !ok {
		return relay.Verdict{}, func(ctx context.Context, o outcome, res relay.Result) {
			if o == done {
				p.takeIn(ctx, id, res.At)
			}
		}
	}
	subject := pod.FullName() + "/" + c.Name
	if err := p.Servers.Start(ctx, pod, c); err != nil {
		return refuse(err), nil
	}
	_ = p.engine.Guarded(metrics.EventStartContainer, subject, func(ctx context.Context) error {
		p.engine.BeforeStart(ctx, id)
		return nil
	})
	return relay.Verdict{}, func(ctx context.Context, o outcome, res relay.Result) {
		if o == unknown && !p.runs(ctx, id) || o == refused {
			return
		}
		p.started(ctx, pod, c, subject, res.At)
		p.Servers.Tell(ctx, hook.PostStartContainer, pod, c)
	}
}

// askedAgain are the waits between questions about a call whose answer was lost: the runtime may still be at it.
var askedAgain = [...]time.Duration{0, time.Second, 5 * time.Second}

// runs asks the runtime whether a container runs.
func (p *Proxy) runs(ctx context.Context, id string) bool {
	for _, wait := range askedAgain {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
		c, err := p.o.List.ContainerStatus(ctx, id)
		if err != nil {
			continue
		}
		switch c.State {
		case workload.StateRunning:
			return true
		case workload.StateStopped:
			return false
		}
	}
	return false
}

// started writes what the request could not carry and proves the rest. at is when the runtime has answered the start, zero where
// nobody knows.
func (p *Proxy) started(ctx context.Context, pod *workload.Pod, c *workload.Container, subject string, at time.Time) {
	id := c.ID
	if _, _, ok := p.engine.Known(id); !ok {
		return // removed since
	}
	sb := engine.Sandbox{ID: pod.ID, Read: func() *workload.Pod { return pod }}
	err := p.engine.Proved(metrics.EventPostStartContainer, subject, sb, id, func(ctx context.Context) error {
		known := func(...*protocol.Applied) *workload.Container { return c }
		return p.engine.Start(ctx, sb, engine.Arrival{ID: id, Read: known, Answered: at}, 0, "")
	})
	if err == nil {
		return
	}
	// The pod has asked not to run without the guarantee, and it runs already: it is ended even when we are ending.
	p.engine.Trouble(subject, "required guarantee", err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	if err := p.o.List.Stop(ctx, id); err != nil {
		p.engine.Trouble(subject, "stop", err)
	}
}
