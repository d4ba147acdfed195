// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"time"

	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Updated says that the runtime has written an update. What that does not carry is written again, and what it was answered with and
// has been decided away meanwhile is taken back. With UpdatesAwaited it returns when the pod's burst has fallen where it had to (lowerPod):
// whoever asked for the update writes the pod's quota next.
func (g *Engine) Updated(ctx context.Context, id string) {
	was, ok := g.reg.container(id)
	if !ok {
		return
	}
	g.reg.answered(id)
	if g.o.UpdatesAwaited {
		g.unsettled.quiet(ctx, was.sandbox, g.halfway())
	}
	g.jobs.add(func(ctx context.Context) {
		var wrote plan.Plan
		for ctx.Err() == nil {
			e, ok := g.reg.container(id)
			if !ok || e.c != was.c || e.c.State == workload.StateCreating {
				return // the next update, or its start, sees to it
			}
			e.told = join(e.told, wrote)
			e.mark.get() // made now, as at a creation
			if pod, ok := g.reg.pod(e.sandbox); ok {
				e.told = join(e.told, g.recorded(g.views.Load(), pod.p, &e))
			}
			if g.takeBack(ctx, &e) {
				return
			}
			wrote = e.plan // who has decided since may have been quicker to write
		}
	})
}

// answerLimit is when an answer that the runtime has not said to have written is not waited for any more: it has refused it, which NRI does
// not tell. The kubelet waits two minutes for a request by default (runtimeRequestTimeout). From then on what nobody of us wants is nobody's business.
const answerLimit = 5 * time.Minute

// takeBack writes a container's plan and takes back what the runtime has written beside it. It is false where somebody has changed or
// decided the container meanwhile. What could not be taken back is left to the next look against drift.
func (g *Engine) takeBack(ctx context.Context, e *entry) bool {
	g.writers.enter(e.c.ID)
	defer g.writers.leave(e.c.ID)
	if !g.reg.stillAs(e) {
		return false
	}
	v, stood := g.views.Load(), e.stood()
	results := g.apply(ctx, v, withUndo(v, stood, e.plan, e.c.Base))
	return len(notUndone(stood, e.plan, results)) > 0 || g.reg.confirm(e)
}

// stood is the former plan of who takes back what is no longer wanted.
func (e *entry) stood() plan.Plan { return join(e.plan, e.told) }

// recorded is what of ours the runtime's record may hold of a container, by what is known of earlier updates, its creation and earlier
// lives. What a repair has taken back since in the kernel alone, the runtime writes again with the next update.
func (g *Engine) recorded(v *node.View, pod *workload.Pod, e *entry) plan.Plan {
	held, past := e.mark.record(), g.past.Load().marks(e.c.ID)
	if len(e.record)+len(held)+len(past) == 0 && e.c.Applied == nil {
		return nil
	}
	t := e.c.Target(pod)
	out := join(retarget(e.record, t), retarget(held, t))
	for _, m := range append(past, e.c.Applied) {
		out = join(out, inRecord(v, mark.PlanOf(m, t)))
	}
	return out
}

// inRecord is the part of a plan that a runtime's record can hold and its updates carry.
func inRecord(v *node.View, pl plan.Plan) (out plan.Plan) {
	for i := range pl {
		if isRecorded(v, &pl[i]) {
			out = append(out, pl[i])
		}
	}
	return out
}

// isRecorded is inRecord of one setting.
func isRecorded(v *node.View, s *plan.Setting) bool {
	return !s.Observe && s.Target.Level == plan.LevelContainer && (s.InResources() || v.InUnified(s.Knob))
}

// confirm ends what e was told, unless something has changed since e was read.
func (r *registry) confirm(e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, ok := r.containers[e.c.ID]
	if !ok || !now.sameAs(e) {
		return false
	}
	now.told = nil
	r.containers[e.c.ID] = now
	return true
}
