// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"

	"github.com/koord-rt/koord-rt/model/workload"
)

// Stop releases a container's CPUs and its part of the pod's sums; what others get back is written later. The container
// has no cgroup any more.
func (g *Engine) Stop(id string) {
	g.stop(id, func(*workload.Container) bool { return true })
}

// Ended is Stop for who has seen that c has ended, as it was known then: a runtime may have given the container another life since, or is
// just doing so, which nobody would end for that. It is false where c is no longer what is known.
func (g *Engine) Ended(c *workload.Container) (still bool) {
	g.stop(c.ID, func(now *workload.Container) bool {
		still = now == c
		return still
	})
	return still
}

func (g *Engine) stop(id string, is func(*workload.Container) bool) {
	var ended *entry
	g.reg.changeContainer(id, func(e *entry) {
		if !is(e.c) || e.c.State == workload.StateStopped {
			return
		}
		c := *e.c
		c.State, c.PID = workload.StateStopped, 0
		e.c = &c
		now := *e
		ended = &now
	})
	if ended != nil {
		g.released(*ended)
	}
}

// released follows the end of a container that e describes.
func (g *Engine) released(e entry) {
	g.moves.forget(e.c.ID)
	if !e.lse.Empty() || !e.lsr.Empty() {
		g.reclaim()
		g.repairSoon() // LS and BE widen again
	}
	g.settleSoon(e.sandbox)
	g.jobs.add(func(context.Context) {
		g.removeMon(e)
		if pod, ok := g.reg.pod(e.sandbox); ok { // else it is forgotten, with all that is open of it
			g.unreadied(e.c.Target(pod.p))
		}
	})
}

// StopPod ends a pod: its protections no longer count. Where nobody tells that its containers have ended with it, this
// does.
func (g *Engine) StopPod(sandbox string) {
	if g.o.ExitsUntold {
		for _, id := range g.reg.membersOf(sandbox) {
			g.Stop(id)
		}
	}
	var pod *workload.Pod
	g.reg.changePod(sandbox, func(e *podEntry) { e.stopped, pod = true, e.p })
	g.jobs.add(func(context.Context) {
		if pod != nil && !g.reg.shared(pod) {
			g.o.Live.drop(pod.Cgroup)
		}
	})
	g.settleSoon(sandbox)
}
