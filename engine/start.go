// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"slices"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Start writes what the specification could not carry and reads everything back (D9). It is meant for the moment when
// the cgroup and the init process exist and nothing has been exec'd; where an edge hears of the start only after it, the
// same is done then. dir is the container's cgroup, "" when the event does not say. An error is a refusal.
func (g *Engine) Start(ctx context.Context, sb Sandbox, ctr Arrival, pid int, dir string) error {
	if g.reg.removed(ctr.ID) {
		return nil // before its pod is put back, too
	}
	until := g.halfway()
	pod := g.podOf(sb)
	var (
		e       entry
		v       *node.View
		todo    plan.Plan
		stood   plan.Plan // what an earlier round has decided away and not taken back yet
		must    protocol.FeatureSet
		missing []string
		made    plan.Target // as it was known when its files were opened
	)
	entered := false
	defer func() {
		if entered {
			g.writers.leave(ctr.ID)
		}
	}()
	for swapped, waited := false, false; !swapped; {
		if _, known := g.reg.container(ctr.ID); !known && (waited || g.reg.removed(ctr.ID)) {
			return nil // removed while its start was made ready
		}
		e = g.entryOf(pod, sb, ctr)
		if e.c.State == workload.StateStopped {
			return nil // it has ended before we were told that it began
		}
		was, c := e, *e.c
		if !waited {
			made = c.Target(pod.p)
		}
		c.PID, c.State = pid, workload.StateCreated
		if dir != "" {
			c.Cgroup = dir
		}
		e.c = &c
		v = g.views.Load()
		todo = e.rest
		if v.Generation != e.gen || v.Generation != e.rendered || !e.inSpec {
			// The View has moved on since creation, or what the spec has of ours is not known: all of it is compared with the kernel.
			// A repair that has decided this container already leaves it to us, too.
			stood = join(e.stood(), stood)
			e.plan, e.gen, e.told = g.decide(v, pod.p, &c), v.Generation, stood
			todo = withUndo(v, stood, e.plan, c.Base)
		}
		if swapped = g.reg.swapContainer(&was, e); swapped {
			g.unexpect(&was) // what is written from now on is the last
		}
		if swapped && !waited {
			must, waited = demanded(v, pod.p), true
			missing = g.ready(ctx, e.sandbox, c.ID, must, until)
			g.writers.enter(c.ID)
			entered = true
			swapped = g.views.Load() == v && g.reg.stillAs(&e) // else it is decided anew: what was decided may have been overtaken
		}
	}
	c := e.c
	missing = slices.Concat(missing, unset(&e, must), g.apart(v, pod.p, &e, must))
	g.learnFormula(&e)
	all := g.withPod(v, direct(e.plan), e.sandbox, must)
	results, bad, release := g.bring(ctx, made, direct(withClass(todo, e.plan)), all, v.Generation)
	if !ctr.Answered.IsZero() && len(bad) == 0 && wrote(results) {
		g.m.AfterStart(time.Since(ctr.Answered))
	}
	g.jobs.add(func(ctx context.Context) {
		release()
		g.unreadied(made) // somebody was at it when the start came
		g.count(results)
		g.noteUnits(v, results)
		if len(notUndone(stood, e.plan, results)) == 0 {
			g.reg.confirm(&e)
		}
		g.recordProof(c.Target(pod.p).Name, c.ID, all, bad, e.gen)
		g.inUnit(v, e.plan)
		g.catchUp(ctx, c, e)
	})
	return refuse(append(missing, failing(must, bad)...))
}

// catchUp writes what a container has been decided to need since its start was, of which wrote is what was written last: an update or a new
// View that came meanwhile, and was written perhaps before that.
func (g *Engine) catchUp(ctx context.Context, c *workload.Container, wrote entry) {
	once := func() bool {
		g.writers.enter(c.ID)
		defer g.writers.leave(c.ID)
		now, ok := g.reg.container(c.ID)
		if !ok || now.sameAs(&wrote) || now.c.State == workload.StateStopped {
			return false
		}
		v := g.views.Load()
		results := g.apply(ctx, v, withUndo(v, join(wrote.plan, now.told), now.plan, now.c.Base))
		if now.c == c && len(notUndone(now.told, now.plan, results)) == 0 {
			g.reg.confirm(&now) // nothing else was told
		}
		wrote = now
		return true
	}
	for ctx.Err() == nil && once() { // and what was decided during the writes
	}
}

// withClass is what is to do of a plan, with the class where a monitoring group is to do: that lies below the group of the class, which the
// specification carries alone. Without it the group would be made in the root, which the kernel gives no task of a class.
func withClass(todo, pl plan.Plan) plan.Plan {
	class := pl.Get(plan.RDTClass)
	if class == nil || todo.Get(plan.RDTMonGroup) == nil || todo.Get(plan.RDTClass) != nil {
		return todo
	}
	todo = append(slices.Clone(todo), *class)
	todo.Sort()
	return todo
}

// wrote reports that something was not in force before.
func wrote(results []apply.Result) bool {
	return slices.ContainsFunc(results, func(r apply.Result) bool { return r.Outcome == apply.Written })
}

// halfway is when a handler that begins now must stop waiting for others: half of its time is for its own work.
func (g *Engine) halfway() time.Time { return time.Now().Add(time.Duration(g.deadline.Load()) / 2) }

// ready returns when nothing but the container's own values is missing for its first instruction: its pod's cgroup is as it should
// be, and the CPUs that it claims are free; at the latest at until. missing is what of the demanded features is not.
func (g *Engine) ready(ctx context.Context, sandbox, id string, must protocol.FeatureSet, until time.Time) (missing []string) {
	if !must.Empty() {
		g.settleSoon(sandbox) // what a hand has changed on the pod is put right before the proof
	}
	if !g.settled(ctx, sandbox, until) && !must.Empty() {
		missing = append(missing, "the pod's cgroup is still being written ("+nameOf(must)+")")
	}
	if !g.moves.wait(ctx, g, id, until) && must.Has(protocol.FeatureCPUSet) {
		missing = append(missing, "the claimed CPUs are still being freed (cpuset)")
	}
	return missing
}

// bring writes what is to do of a container and reads all of its plan back; what it returns last gives back what it holds.
func (g *Engine) bring(ctx context.Context, t plan.Target, todo, all plan.Plan, gen uint64) ([]apply.Result, []apply.Mismatch, func()) {
	if s, ok := g.o.Kernel.(Starter); ok {
		return s.Start(ctx, t, todo, all, gen)
	}
	var results []apply.Result
	if len(todo) > 0 {
		results = g.o.Kernel.Apply(ctx, todo, gen)
	}
	return results, g.o.Kernel.Verify(all), func() {}
}

// entryOf is the known entry of a container, or one for a container that was created without us. The CPUs that such a one claims
// begin to be freed, as at a creation.
func (g *Engine) entryOf(pod podEntry, sb Sandbox, ctr Arrival) entry {
	if e, ok := g.reg.container(ctr.ID); ok {
		return e
	}
	e := g.adopt(pod, sb.ID, ctr)
	g.startContainer(pod.p, &e)
	e.inSpec = e.c.Applied != nil
	e, first := g.enter(pod.p, e)
	if first && e.c.State != workload.StateStopped {
		g.claims(&e)
	}
	if first && e.unmanaged {
		g.jobs.add(g.countUnmanaged)
	}
	return e
}

// adopt reads a container that exists already: what its spec holds of ours is told by the ledger and its annotation.
func (g *Engine) adopt(pod podEntry, sandbox string, ctr Arrival) entry {
	known := g.specified(ctr.ID)
	c := ctr.Read(g.Marked(ctr.ID)...)
	e := entry{c: c, sandbox: sandbox, unmanaged: c.Applied == nil}
	c.Foreign = foreignOf(known, c)
	for _, m := range append(known, c.Applied) {
		if m != nil {
			e.plan = mark.PlanOf(m, c.Target(pod.p)) // generation 0: decided anew, with this to take back from
			break
		}
	}
	g.claimed(g.views.Load(), pod.p, &e)
	return e
}

// foreignOf is what hook servers wanted of a container when it was made, as far as the marks tell.
func foreignOf(known []*protocol.Applied, c *workload.Container) (out plan.Plan) {
	for _, m := range append(known, c.Applied) {
		if m == nil {
			continue
		}
		for _, s := range mark.PlanOf(m, plan.Target{Level: plan.LevelContainer}) {
			if s.Hook != "" {
				out = append(out, s)
			}
		}
		break
	}
	return out
}

// apply writes a plan and counts what became of it.
func (g *Engine) apply(ctx context.Context, v *node.View, pl plan.Plan) []apply.Result {
	if pl = direct(pl); len(pl) == 0 {
		return nil
	}
	results := g.write(ctx, v, pl)
	g.count(results)
	return results
}
