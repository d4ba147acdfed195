// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Render puts a plan into the runtime's specification and returns what that cannot carry, which is written when the
// container exists.
type Render func(v *node.View, spec plan.Plan) (rest plan.Plan)

// Create decides a container before the runtime makes it. CPUs that the container claims begin to be freed at once. An
// error is a refusal.
func (g *Engine) Create(ctx context.Context, sb Sandbox, c *workload.Container, render Render) error {
	e, pod, err := g.create(ctx, sb, c, render)
	if err == nil {
		g.created(pod, &e)
	}
	return err
}

func (g *Engine) create(ctx context.Context, sb Sandbox, c *workload.Container, render Render) (entry, *workload.Pod, error) {
	pod := g.podOf(sb)
	v := g.views.Load()
	e := entry{c: c, sandbox: sb.ID, inSpec: true}
	if c.Foreign == nil {
		c.Foreign = foreignOf(nil, c) // the proxy was here before us
	}
	if err := unavailable(g.views.States(), pod.p); err != nil {
		return e, pod.p, err
	}
	g.claimed(v, pod.p, &e)
	e.plan, e.gen = g.decide(v, pod.p, c), v.Generation

	spec, held := g.o.Live.check(v, c, e.plan)
	if len(held) > 0 && v.Kernel.Cgroup == node.CgroupV1 {
		g.raisePod(ctx, e)
		spec, held = g.o.Live.check(v, c, e.plan)
	}
	e.rest = append(render(v, spec), held...)
	e.mark = g.markOf(v, spec, c)
	g.reg.addContainer(e)
	if !e.lse.Empty() || !e.lsr.Empty() {
		g.publishClaims()
		g.moves.start(g, c.ID)
	}
	g.settleSoon(e.sandbox)
	return e, pod.p, nil
}

// created records what stands in the specification, after the reply.
func (g *Engine) created(pod *workload.Pod, e *entry) {
	kept := *e
	g.jobs.add(func(context.Context) {
		g.recordSpec(pod, &kept)
		g.countDecisions(kept.plan)
		_, n := g.reg.counts()
		g.m.SetContainers(n)
	})
}

// CreatedLate says that the runtime has gone on without the decision: nothing of the plan stands in the specification.
func (g *Engine) CreatedLate(id string) {
	g.reg.changeContainer(id, func(e *entry) { e.inSpec, e.mark, e.rest = false, nil, e.plan })
}

// raisePod writes the pod's cgroup before the container's spec can rely on it: on cgroup v1 a child's quota beyond its
// parent's, or CPUs that the parent lacks, make runc fail.
func (g *Engine) raisePod(ctx context.Context, e entry) {
	g.reg.addContainer(e)
	g.settleSoon(e.sandbox)
	g.settled(ctx, e.sandbox)
}
