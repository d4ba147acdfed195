// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"time"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// podChecks are when a pod's cgroup is compared again after a resize: the kubelet writes it itself, some time after the
// runtime has answered, and there is no event for that.
var podChecks = [...]time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second, 3 * time.Second}

// UpdatePod comes before the kubelet writes the pod's cgroup for a resize to base. What would make that write fail — a
// burst above the new quota, cpu.idle beside a new weight — is taken away first and comes back with the checks. A burst that the
// new quota holds stays: to write it twice costs the kernel a walk over every group on cgroup v1 (tg_set_cfs_bandwidth). What stands is
// known from memory; of a hand's larger burst the kubelet's write is refused, until the drift check, and it writes again.
func (g *Engine) UpdatePod(ctx context.Context, sb Sandbox, base workload.Resources) {
	e := g.podOf(sb)
	v := g.views.Load()
	pod := *e.p
	pod.Base = base
	need := g.reg.limits(pod.ID).quota
	// Before the burst falls: whoever brings the pod to its old plan must not raise it again.
	g.reg.changePod(pod.ID, func(e *podEntry) {
		if base.Quota != e.p.Base.Quota || !need.Set || base.Quota.V <= need.V {
			// Else it has told of the weight, and the quota that the containers need follows; or the pod's is larger for good (a limit of its
			// own), and the burst comes back with the last check.
			e.lowUntil = time.Time{}
		}
		e.p, e.before, e.told, e.unsure = &pod, nil, true, false
	})
	g.unsettled.quiet(ctx, pod.ID, g.halfway())
	if now, ok := g.reg.pod(pod.ID); ok {
		e.plan = now.plan // it may have got its first burst meanwhile
	}
	var pl plan.Plan
	for _, k := range [...]plan.Knob{plan.CPUBurst, plan.CPUIdle} {
		if s := e.plan.Get(k); s != nil && !s.Observe && s.Value.Int() > 0 && (k != plan.CPUBurst || !g.fitting(s, base.Quota)) {
			low := *s
			low.Value, low.Reason = plan.Int(0), "out of the way of the kubelet's resize"
			pl = append(pl, low)
		}
	}
	if len(pl) > 0 {
		g.count(g.o.Kernel.Apply(ctx, pl, v.Generation))
	}
	g.checkPodLater(pod.ID)
}

// fitting reports that a quota holds the burst that stands: the kernel refuses a limited quota below the burst. It is the one that was
// written last, since a plan may be newer than its writes; where that is not known, the planned one, if the kernel is read to have it.
func (g *Engine) fitting(burst *plan.Setting, quota unit.Opt) bool {
	fits := func(v plan.Value) bool { return quota.Set && (quota.V < 0 || v.Int() <= quota.V) }
	if last, ok := g.o.Kernel.Last(burst.ID()); ok {
		return fits(last)
	}
	return fits(burst.Value) && len(g.o.Kernel.Verify(plan.Plan{*burst})) == 0
}

// UpdatedPod starts the checks anew.
func (g *Engine) UpdatedPod(sandbox string) { g.checkPodLater(sandbox) }

// checkPodLater brings the pod's cgroup to its plan at each of podChecks.
func (g *Engine) checkPodLater(sandbox string) {
	life, n := g.ctx(), 0
	var look func()
	look = func() {
		if life.Err() != nil {
			return
		}
		g.settleSoon(sandbox)
		if n++; n < len(podChecks) {
			time.AfterFunc(podChecks[n]-podChecks[n-1], look)
		}
	}
	time.AfterFunc(podChecks[0], look) // the others one after the other: somebody waits for a reply
}
