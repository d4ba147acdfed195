// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// TakeBack has taken back what of p nobody wants: another writer was to do it, and may have gone before it has. An engine asks for that
// once. By which value is decided anew: the kubelet may have asked for another one since. What the levels above pods carry each pass asks
// for, so of them there is nothing to do.
func (g *Engine) TakeBack(p plan.Plan) {
	if len(p) == 0 {
		return
	}
	sandboxes := map[string][]string{}
	for _, pod := range g.reg.podList() {
		sandboxes[pod.p.Cgroup] = append(sandboxes[pod.p.Cgroup], pod.p.ID)
	}
	for i := range p {
		s := p[i]
		if s.Only.Set { // what it was to replace is what stands
			s.Value, s.Only = plan.Int(s.Only.V), unit.Opt{}
		}
		stands := plan.Plan{s}
		switch s.Target.Level {
		case plan.LevelContainer:
			g.reg.changeContainer(s.Target.Container, func(e *entry) { e.owe(stands) })
		case plan.LevelPod:
			for _, sandbox := range sandboxes[s.Target.Cgroup] {
				g.reg.changePod(sandbox, func(e *podEntry) { e.owe(stands) })
			}
		case plan.LevelNode, plan.LevelGroup, plan.LevelQoS:
		}
	}
	g.repairSoon()
}

// owe adds what stands to the former plan of whoever decides next, who takes back what of it is not wanted.
func (e *entry) owe(stands plan.Plan) {
	if all := join(e.plan, stands); len(all) > len(e.plan) {
		e.plan, e.gen = all, undecided
	}
}

func (e *podEntry) owe(stands plan.Plan) {
	if all := join(e.plan, stands); len(all) > len(e.plan) {
		e.plan, e.gen = all, undecided
	}
}
