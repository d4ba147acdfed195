// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// lowFor is how long a pod's burst stays away for a kubelet that tells of the pod behind its containers: each of them takes the runtime
// some tens of milliseconds, and more where many pods are resized at once. The last check gives it back to a pod that keeps its quota.
const lowFor = 2900 * time.Millisecond

// mustFall is a container's burst where it stands in the way of the quota that the kubelet asks for, or the pod's may; nil else.
func (g *Engine) mustFall(v *node.View, pod *workload.Pod, c *workload.Container, old, next plan.Plan, before, asked unit.Opt) *plan.Setting {
	if !v.Kernel.Has(plan.CPUBurst) || v.Ceded.Has(plan.CPUBurst) || !asked.Set {
		return nil
	}
	own := old.Get(plan.CPUBurst)
	if own == nil || own.Observe {
		own = &plan.Setting{Target: c.Target(pod), Knob: plan.CPUBurst}
	}
	if !falls(before, asked) && g.burstOf(own) <= burstIn(next) {
		return nil // nothing is waited for where nothing has to fall
	}
	return own
}

// lowerBurst makes room for a smaller quota: a quota below the burst that stands in the kernel is EINVAL, on the
// container and, when the kubelet follows, on the pod. The new bursts come with the reply and with the checks of the pod. The container's
// falls before the reply, since the runtime writes next; the pod's, where the kubelet can be held up, while the runtime does (lowerPod),
// since nobody writes there before that call is over. Others are waited for, as long as the update may be. It reports whether
// the pod's stood and has to stay low: whoever settles the pod before the kubelet has told of its new quota would raise it to the old one's.
func (g *Engine) lowerBurst(ctx context.Context, u *Resize) (low bool) {
	g.writers.quiet(ctx, u.c.ID, u.until) // who is at it may write the old burst
	pod := g.keepLow(u.pod, !u.untold)
	g.checkPodLater(u.pod)
	had := pod.Get(plan.CPUBurst)
	stands := had != nil && !had.Observe
	var podLow plan.Plan
	if stands {
		if last, ok := g.o.Kernel.Last(had.ID()); !ok || last.Int() > 0 { // the pod's other containers fall, too
			podLow = plan.Plan{lowered(*had, 0)}
		}
	}
	var with plan.Plan
	if u.untold || !g.o.UpdatesAwaited {
		with, podLow = podLow, nil // nobody holds the kubelet up until it has fallen
	}
	g.lowerOwn(ctx, u.v, u.c.ID, *u.falls, u.full, with)
	if podLow != nil {
		g.lowerPod(ctx, u.pod, podLow, u.v.Generation, u.until)
	}
	return stands
}

// keepLow keeps a pod's burst away where the kubelet tells of the pod, and is its plan. Also where none stands yet: a pod whose containers have
// just started is about to get one, for its old quota.
func (g *Engine) keepLow(sandbox string, told bool) (pl plan.Plan) {
	g.reg.changePod(sandbox, func(e *podEntry) {
		if pl = e.plan; told {
			e.lowUntil = g.o.Now().Add(lowFor)
		}
	})
	return pl
}

// lowerOwn lowers a container's burst to what is wanted of it: by this update, which wants next, and by what has been decided since, as of another one,
// whichever is less. What else has to fall is written with it.
func (g *Engine) lowerOwn(ctx context.Context, v *node.View, id string, own plan.Setting, next, with plan.Plan) {
	g.writers.enter(id)
	defer g.writers.leave(id)
	e, ok := g.reg.container(id)
	var pl plan.Plan
	if want := min(burstIn(next), burstIn(e.plan)); ok && (own.Value.Int() > want || g.burstOf(&own) > want) {
		pl = append(pl, lowered(own, want))
	}
	if pl = append(pl, with...); len(pl) > 0 {
		g.count(g.o.Kernel.Apply(ctx, pl, v.Generation))
	}
}

// burstOf is the burst of ours that a cgroup may have: what was written last, also by a plan that is no longer the container's, or what a plan
// says, an earlier life's as well. Somebody else's is not ours to lower.
func (g *Engine) burstOf(s *plan.Setting) int64 {
	last, _ := g.o.Kernel.Last(s.ID()) // 0 where nothing was written, or somebody was not waited for any longer: the plan has the word then
	return max(last.Int(), s.Value.Int())
}

// burstIn is a plan's burst, 0 where it has none.
func burstIn(pl plan.Plan) int64 {
	if s := pl.Get(plan.CPUBurst); s != nil && !s.Observe {
		return s.Value.Int()
	}
	return 0
}

// lowerPod writes a pod's burst while the runtime is at work. Updated and UpdatePod wait for it: so it has fallen before the kubelet hears
// of either and goes on to the pod's quota.
func (g *Engine) lowerPod(ctx context.Context, sandbox string, low plan.Plan, gen uint64, until time.Time) {
	for !g.unsettled.take(sandbox) { // who is at it may write an older decision
		if !g.unsettled.quiet(ctx, sandbox, until) {
			g.count(g.o.Kernel.Apply(ctx, low, gen))
			return
		}
	}
	g.behind(func() {
		defer g.unsettled.release(sandbox)
		g.shielded("sandbox "+sandbox, func() { g.count(g.o.Kernel.Apply(g.ctx(), low, gen)) })
	})
}

func lowered(s plan.Setting, burst int64) plan.Setting {
	s.Value, s.Owner = plan.Int(burst), protocol.FeatureBurst
	s.Reason = "lowered before a smaller quota: a quota below the burst is refused"
	return s
}
