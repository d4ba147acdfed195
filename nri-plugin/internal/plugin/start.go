// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// StartContainer runs when the cgroup and the init process exist and nothing has been exec'd: what the spec could not
// carry is written, then everything is read back (D9).
func (p *Plugin) StartContainer(_ context.Context, sb *api.PodSandbox, ctr *api.Container) error {
	_, err := guard(p, call[struct{}]{
		event:   metrics.EventStartContainer,
		subject: subject(sb, ctr),
		work: func(ctx context.Context) (struct{}, error) {
			return struct{}{}, p.start(ctx, sb, ctr)
		},
	})
	return err
}

func (p *Plugin) start(ctx context.Context, sb *api.PodSandbox, ctr *api.Container) error {
	pod := p.podOf(sb)
	e := p.entryOf(pod, sb, ctr)
	c := *e.c
	c.PID, c.State = int(ctr.GetPid()), workload.StateCreated
	if dir := nri.Cgroup(sb, ctr); dir != "" {
		c.Cgroup = dir
	}
	e.c = &c
	v := p.views.Load()
	todo := e.rest
	if v.Generation != e.gen || !e.inSpec {
		// The View has moved on since creation, or the spec has nothing of ours: all of it is compared with the kernel.
		old := e.plan
		e.plan, e.gen = p.decide(v, pod.p, &c), v.Generation
		todo = withUndo(v, old, e.plan, c.Base)
	}
	p.reg.putContainer(e)
	p.settled(ctx, e.sandbox)
	p.moves.wait(ctx, p, c.ID)
	p.apply(ctx, v, todo)
	err := p.prove(v, pod.p, &e)
	p.jobs.add(func(ctx context.Context) {
		p.inUnit(v, e.plan)
		p.learnFormula(ctx, e)
	})
	return err
}

// entryOf is the known entry of a container, or one for a container that was created without us.
func (p *Plugin) entryOf(pod podEntry, sb *api.PodSandbox, ctr *api.Container) entry {
	if e, ok := p.reg.container(ctr.GetId()); ok {
		return e
	}
	e := p.adopt(pod, sb, ctr)
	p.reg.putContainer(e)
	return e
}

// adopt reads a container that exists already: what its spec holds of ours is told by the ledger and its annotation.
func (p *Plugin) adopt(pod podEntry, sb *api.PodSandbox, ctr *api.Container) entry {
	known := p.o.Past.marks(ctr.GetId())
	if e, ok := p.reg.container(ctr.GetId()); ok {
		if m := e.mark.get(); m != nil {
			known = append([]*protocol.Applied{m}, known...)
		}
	}
	c := nri.Container(sb, ctr, known...)
	e := entry{c: c, sandbox: sb.GetId()}
	for _, m := range append(known, c.Applied) {
		if m != nil {
			e.plan = nri.PlanOf(m, c.Target(pod.p)) // generation 0: decided anew, with this to take back from
			break
		}
	}
	p.claimed(p.views.Load(), pod.p, &e)
	return e
}

// apply writes a plan and counts what became of it.
func (p *Plugin) apply(ctx context.Context, v *node.View, pl plan.Plan) {
	if pl = direct(pl); len(pl) == 0 {
		return
	}
	p.count(p.write(ctx, v, pl))
}
