// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/mode"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// create decides a container and puts the plan into the request, with our mark. What a request cannot carry is written
// right after the start.
func (p *Proxy) create(ctx context.Context, msg []byte) (relay.Verdict, answered) {
	r, err := cri.ReadCreateContainer(msg)
	if err != nil {
		return p.unread(metrics.EventCreateContainer, err)
	}
	p.naming.wait(ctx, func() bool { _, ok := p.engine.KnownPod(r.Sandbox); return ok })
	pod, err := p.podOf(r)
	if err != nil {
		return p.unread(metrics.EventCreateContainer, err)
	}
	answers, err := p.askCreate(ctx, pod, r)
	if err != nil {
		return refuse(err), nil
	}
	c := r.Container()
	c.ID = "creation " + strconv.FormatUint(p.creations.Add(1), 10) + " of " + r.Name
	if pod.Cgroup != "" {
		c.Cgroup = pod.Cgroup + "/new" // only its parent is looked at before it has a name
	}
	for i := range answers {
		c.Foreign = append(c.Foreign, answers[i].Plan...)
	}
	pending, parent := c.ID, p.parentOf(ctx, r)
	var answeredAs atomic.Pointer[string] // the id, "" for none, nil while the runtime has not answered
	var creation *engine.Creation
	out, err := engine.Guard(p.engine, engine.Call[[]byte]{
		Event:   metrics.EventCreateContainer,
		Subject: pod.FullName() + "/" + r.Name,
		Before: func() bool {
			creation = p.engine.Decide(engine.Sandbox{ID: r.Sandbox, Read: func() *workload.Pod { return pod }}, c)
			return creation.PreparesInMemory()
		},
		Work: func(ctx context.Context) ([]byte, error) { return p.prepare(ctx, creation, r, c, answers, parent) },
		Late: func() {
			id := answeredAs.Load()
			if id == nil {
				p.engine.CreatedLate(pending)
				return
			}
			p.engine.CreatedLate(*id)
			p.engine.Dropped(r.Sandbox, pending) // it came after the name
		},
	})
	if err != nil {
		return refuse(err), nil
	}
	if out == nil {
		p.engine.CreatedLate(pending) // the request goes on as it came
	}
	p.naming.begin()
	settle := p.engine.UnderWay(r.Sandbox)
	return relay.Verdict{Message: out}, func(_ context.Context, o outcome, res relay.Result) {
		defer settle()
		defer p.naming.end()
		id, err := cri.ReadID(res.Reply)
		answeredAs.Store(&id)
		if o != done || err != nil || id == "" {
			p.engine.Dropped(r.Sandbox, pending)
			return
		}
		name := *p.runtime.Load()
		if name == "" { // where its cgroup will be cannot be told: its start takes it in, by the runtime's record
			p.engine.Dropped(r.Sandbox, pending)
			return
		}
		p.engine.Named(pending, id, cri.Cgroup(name, pod.Cgroup, id))
	}
}

// prepare is the request as it goes on.
func (p *Proxy) prepare(ctx context.Context, creation *engine.Creation, r *cri.CreateContainer, c *workload.Container, answers []hooks.Answer, parent string) ([]byte, error) {
	var out []byte
	var failed error
	err := creation.Prepare(ctx, func(v *node.View, spec plan.Plan) plan.Plan {
		patch, rest := cri.Create(v, spec, r, c, mode.By(v, p.o.Version))
		if patch, failed = containerPatch(patch, r, answers, parent); failed == nil {
			out, failed = r.Patch(patch)
		}
		if failed != nil {
			return spec // none of it stands in the request
		}
		return rest
	})
	if err == nil && failed != nil {
		p.engine.CreatedLate(c.ID)
		return nil, failed
	}
	return out, err
}

// parentOf is the pod's cgroup parent where a hook server has changed it: the request still carries the kubelet's.
func (p *Proxy) parentOf(ctx context.Context, r *cri.CreateContainer) string {
	if !p.o.Hooks.Any() {
		return ""
	}
	cfg, err := p.Servers.Of(ctx, r.Sandbox)
	if err != nil {
		return ""
	}
	if asked, err := r.SandboxConfig(); err != nil || asked.CgroupParent == cfg.CgroupParent {
		return ""
	}
	return cfg.CgroupParent
}

// podOf is the container's pod: known, or as the request describes it.
func (p *Proxy) podOf(r *cri.CreateContainer) (*workload.Pod, error) {
	if pod, ok := p.engine.KnownPod(r.Sandbox); ok {
		return pod, nil
	}
	cfg, err := r.SandboxConfig()
	if err != nil {
		return nil, err
	}
	return cfg.Pod(r.Sandbox, ""), nil
}
