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
	return g.Decide(sb, c).Create(ctx, render)
}

// Creation is a container that has been decided and is not promised yet.
type Creation struct {
	g   *Engine
	v   *node.View
	pod *workload.Pod
	e   entry
	err error
	// spec may stand in the specification, held must wait; nil until the kernel was asked.
	spec, held plan.Plan
	asked      bool
}

// Decide decides a container out of memory alone.
func (g *Engine) Decide(sb Sandbox, c *workload.Container) *Creation {
	pod := g.podOf(sb)
	cr := &Creation{g: g, v: g.views.Load(), pod: pod.p, e: entry{c: c, sandbox: sb.ID, inSpec: true}}
	if c.Foreign == nil {
		c.Foreign = foreignOf(nil, c) // the proxy was here before us
	}
	if cr.err = g.unavailable(cr.v, pod.p, c); cr.err != nil {
		return cr
	}
	g.claimed(cr.v, pod.p, &cr.e)
	cr.e.plan, cr.e.gen = g.decide(cr.v, pod.p, c), cr.v.Generation
	return cr
}

// InMemory reports whether nothing that Create still has to do can wait for the kernel: no file is looked up, none is
// written.
func (cr *Creation) InMemory() bool {
	if cr.err != nil {
		return true
	}
	if cr.g.o.Live.looksUp(cr.v, cr.e.c, cr.e.plan) {
		return false
	}
	cr.ask()
	return !cr.mustRaise()
}

// ask holds the plan against the node's present state.
func (cr *Creation) ask() {
	if cr.asked {
		return
	}
	cr.asked = true
	g := cr.g
	if now, gone := g.o.Live.present(cr.v, cr.e.plan); len(gone) > 0 {
		g.lost(cr.pod, cr.e.c, gone)
		cr.v, cr.e.plan = now, g.decide(now, cr.pod, cr.e.c)
		g.o.Live.stale()
	}
	cr.spec, cr.held = g.o.Live.check(cr.v, cr.e.c, cr.e.plan)
}

// mustRaise reports whether the pod's cgroup stands in the container's way.
func (cr *Creation) mustRaise() bool { return len(cr.held) > 0 && cr.v.Kernel.Cgroup == node.CgroupV1 }

// Create is the rest of Engine.Create.
func (cr *Creation) Create(ctx context.Context, render Render) error {
	err := cr.create(ctx, render)
	if err == nil && !cr.g.reg.removed(cr.e.c.ID) {
		cr.g.created(cr.pod, &cr.e)
	}
	return err
}

func (cr *Creation) create(ctx context.Context, render Render) error {
	if cr.err != nil {
		return cr.err
	}
	g, e := cr.g, &cr.e
	if e.claims() {
		defer cr.unclaim()
		cr.claim()
	}
	if cr.ask(); cr.mustRaise() {
		g.raisePod(ctx, *e)
		cr.asked = false
		cr.ask()
	}
	e.rest, e.rendered = append(render(cr.v, cr.spec), cr.held...), e.gen
	e.mark = g.markOf(cr.v, cr.spec, e.c)
	g.reg.addContainer(*e)
	if g.reg.removed(e.c.ID) {
		return nil // it has failed meanwhile
	}
	if e.claims() {
		g.moves.start(g, e.c.ID)
	}
	g.settleSoon(e.sandbox)
	return nil
}

// created records what stands in the specification, after the reply.
func (g *Engine) created(pod *workload.Pod, e *entry) {
	kept := *e
	g.jobs.add(func(context.Context) {
		g.expect(&kept)
		kept.mark.get() // made now: it lets go of the View
		g.recordSpec(&kept, kept.plan)
		g.recordObserved(&kept)
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
	g.settled(ctx, e.sandbox, g.halfway())
}
