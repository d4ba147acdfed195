// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
	containerpolicy "github.com/koord-rt/koord-rt/policy/container"
	podpolicy "github.com/koord-rt/koord-rt/policy/pod"
)

// podOf is the known pod of a sandbox, or one read from the event: after a late RunPodSandbox, or for a pod that was
// made while we were away.
func (p *Plugin) podOf(sb *api.PodSandbox) podEntry {
	if e, ok := p.reg.pod(sb.GetId()); ok {
		return e
	}
	e := podEntry{p: nri.Pod(sb)}
	p.reg.putPod(e)
	p.problems(e.p, "", e.p.Problems)
	return e
}

// decide asks the policy for one container and reports what could not be used.
func (p *Plugin) decide(v *node.View, pod *workload.Pod, c *workload.Container) plan.Plan {
	pl, problems := containerpolicy.Decide(v, pod, c)
	p.problems(pod, c.Name, problems)
	return pl
}

// decidePod asks the policy for a pod's cgroup with the present sums, and stores the answer.
func (p *Plugin) decidePod(v *node.View, sandbox string, pod *workload.Pod) plan.Plan {
	pl, problems := podpolicy.Decide(v, pod, p.reg.sums(sandbox))
	p.problems(pod, "", problems)
	p.reg.changePod(sandbox, func(e *podEntry) { e.plan, e.gen = pl, v.Generation })
	return pl
}

// claimed stores the CPUs that a container claims and publishes the sum.
func (p *Plugin) claimed(v *node.View, pod *workload.Pod, e *entry) {
	lse, lsr, problems := containerpolicy.Claim(v, pod, e.c)
	p.problems(pod, e.c.Name, problems)
	e.lse, e.lsr = lse, lsr
}

// publishClaims makes the registry's claims part of the View.
func (p *Plugin) publishClaims() {
	c := p.reg.claims()
	p.views.SetClaims(c)
	p.m.SetClaims(c.LSE.Len(), c.LSR.Len())
	p.m.SetGeneration(p.views.Load().Generation)
}

// problems reports unusable input by log, metric and ledger, each pair of place and key once in a while. The work is
// left for later; only the check whether there is any is done here.
func (p *Plugin) problems(pod *workload.Pod, container string, list []protocol.Problem) {
	if len(list) == 0 {
		return
	}
	target := pod.Target()
	if container != "" {
		target.Name += "/" + container
	}
	p.jobs.add(func(context.Context) {
		for _, pr := range list {
			p.report(target, pr)
		}
	})
}

// specOnly are the knobs that exist in a container's specification and nowhere in the kernel.
var specOnly = plan.KnobSet(plan.Env, plan.Device, plan.CDIDevice, plan.Mount)

// direct is the part of a plan that can be written to the kernel.
func direct(pl plan.Plan) plan.Plan {
	out := make(plan.Plan, 0, len(pl))
	for i := range pl {
		if !specOnly.Has(pl[i].Knob) {
			out = append(out, pl[i])
		}
	}
	return out
}
