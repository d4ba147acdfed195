// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
	containerpolicy "github.com/koord-rt/koord-rt/policy/container"
	podpolicy "github.com/koord-rt/koord-rt/policy/pod"
)

// podOf is the known pod of a sandbox, or one read from the event: a pod is taken in after the
// reply, and one that was made while we were away is not known at all.
func (g *Engine) podOf(sb Sandbox) podEntry {
	if e, ok := g.reg.pod(sb.ID); ok {
		return e
	}
	read := newPodEntry(sb.Read())
	g.takingIn.Lock()
	defer g.takingIn.Unlock()
	if e, ok := g.reg.pod(sb.ID); ok {
		return e // its first container has come while it was read behind the reply, or the other way round
	}
	e := read
	if e.p.Ask.Resctrl != nil {
		e.ungrouped = true // as far as is known; a repair looks and makes it
		g.repairSoon()
	}
	g.startPod(&e)
	g.reg.putPod(e)
	g.problems(e.p, "", e.p.Problems)
	return e
}

// decide asks the policy for one container and reports what could not be used. What hook servers want of the container
// is joined to it. Without the group that its pod asks for it goes with its class: in the group of the machine it would have the whole
// cache.
func (g *Engine) decide(v *node.View, pod *workload.Pod, c *workload.Container) plan.Plan {
	if pod.Ask.Resctrl != nil {
		if e, ok := g.reg.pod(pod.ID); ok && e.ungrouped {
			alike := *pod
			alike.Ask.Resctrl, pod = nil, &alike
		}
	}
	pl, problems := containerpolicy.Decide(v, pod, c)
	g.problems(pod, c.Name, problems)
	if len(c.Foreign) > 0 {
		pl = g.o.Join(pl, retarget(c.Foreign, c.Target(pod)))
	}
	return pl
}

// foreignHolds is Join where nobody asks hook servers: what a mark says to be theirs was found to hold by whoever asked.
func foreignHolds(ours, foreign plan.Plan) plan.Plan {
	out := make(plan.Plan, 0, len(ours)+len(foreign))
	for i := range ours {
		mine := plan.ClaimOf(&ours[i])
		if !slices.ContainsFunc(foreign, func(s plan.Setting) bool { return plan.ClaimOf(&s) == mine }) {
			out = append(out, ours[i])
		}
	}
	return append(out, foreign...)
}

// decidePod asks the policy for the cgroup of a pod with the present sums, and stores the answer. The pod's former plan becomes what it
// was then: it may have succeeded another sandbox since pod was read.
func (g *Engine) decidePod(v *node.View, pod *podEntry) plan.Plan {
	pl, problems := podpolicy.Decide(v, pod.p, g.reg.sums(pod.p.ID))
	g.problems(pod.p, "", problems)
	if s := pl.Get(plan.CPUBurst); s != nil && !s.Observe && g.o.Now().Before(pod.lowUntil) {
		*s = lowered(*s, 0)
	}
	g.reg.changePod(pod.p.ID, func(e *podEntry) {
		pod.plan, pod.before = e.plan, e.before
		e.plan, e.gen = pl, v.Generation
	})
	return pl
}

// claimed stores the CPUs that a container claims and publishes the sum.
func (g *Engine) claimed(v *node.View, pod *workload.Pod, e *entry) {
	lse, lsr, problems := containerpolicy.Claim(v, pod, e.c)
	g.problems(pod, e.c.Name, problems)
	e.lse, e.lsr = lse, lsr
}

// publishClaims makes the registry's claims part of the View. One at a time: an older sum is never put over a newer one.
func (g *Engine) publishClaims() {
	g.claiming.Lock()
	defer g.claiming.Unlock()
	c := g.reg.claims()
	g.views.SetClaims(c)
	g.m.SetClaims(c.LSE.Len(), c.LSR.Len())
	g.m.SetGeneration(g.views.Load().Generation)
}

// problems reports unusable input by log, metric and ledger, each pair of place and key once in a while. The work is
// left for later; only the check whether there is any is done here.
func (g *Engine) problems(pod *workload.Pod, container string, list []protocol.Problem) {
	if len(list) == 0 {
		return
	}
	target := pod.Target()
	if container != "" {
		target.Name += "/" + container
	}
	g.jobs.add(func(context.Context) {
		for _, pr := range list {
			g.report(target, pr)
		}
	})
}

// specOnly are the knobs that exist in a container's specification and nowhere in the kernel.
var specOnly = plan.KnobSet(plan.Env, plan.Device, plan.CDIDevice, plan.Mount)

// direct is the part of a plan that can be written to the kernel; the plan itself where that is all of it.
func direct(pl plan.Plan) plan.Plan {
	n := 0
	for i := range pl {
		if !specOnly.Has(pl[i].Knob) {
			n++
		}
	}
	if n == len(pl) {
		return pl
	}
	out := make(plan.Plan, 0, n)
	for i := range pl {
		if !specOnly.Has(pl[i].Knob) {
			out = append(out, pl[i])
		}
	}
	return out
}
