// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Revive takes a container that has ended as one that is about to start again, where the runtime gives it a second life: ctr reads it as
// one that is being created. The books on its first life, whose cgroup is gone, are closed ahead of the first write of the second.
func (g *Engine) Revive(sb Sandbox, ctr Arrival) {
	was, ok := g.reg.container(ctr.ID)
	if !ok || was.c.State != workload.StateStopped {
		return
	}
	pod := g.podOf(sb)
	g.unexpect(&was)
	g.recordGone(was.c.Target(pod.p))
	e := g.adopt(pod, sb.ID, ctr)
	e.inSpec, e.mark = e.c.Applied != nil, was.mark
	if m := e.mark.get(); m != nil { // which the runtime's record still has, with a base that nothing else tells of
		g.recordSpec(&e, mark.PlanOf(m, e.c.Target(pod.p)))
	}
	if g.reg.swapContainer(&was, e) {
		g.reclaim()
		g.repairSoon()
	}
}
