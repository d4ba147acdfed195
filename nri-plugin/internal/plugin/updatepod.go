// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/model/plan"
)

// podChecks are when a pod's cgroup is compared again after a resize: the kubelet writes it itself, some time after the
// runtime has answered, and there is no event for that.
var podChecks = [...]time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second, 3 * time.Second}

// UpdatePodSandbox comes before the kubelet writes the pod's cgroup for a resize. What would make that write fail — a
// burst above the new quota, cpu.idle beside a new weight — is taken away first and comes back with the checks.
func (p *Plugin) UpdatePodSandbox(_ context.Context, sb *api.PodSandbox, overhead, r *api.LinuxResources) error {
	_, err := guard(p, call[struct{}]{
		event:   metrics.EventUpdatePodSandbox,
		subject: subject(sb, nil),
		work: func(ctx context.Context) (struct{}, error) {
			p.updatePod(ctx, sb, overhead, r)
			return struct{}{}, nil
		},
	})
	return err
}

func (p *Plugin) updatePod(ctx context.Context, sb *api.PodSandbox, overhead, r *api.LinuxResources) {
	e := p.podOf(sb)
	v := p.views.Load()
	var pl plan.Plan
	for _, k := range [...]plan.Knob{plan.CPUBurst, plan.CPUIdle} {
		if s := e.plan.Get(k); s != nil && !s.Observe && s.Value.Int() > 0 {
			low := *s
			low.Value, low.Reason = plan.Int(0), "out of the way of the kubelet's resize"
			pl = append(pl, low)
		}
	}
	if len(pl) > 0 {
		p.count(p.o.Kernel.Apply(ctx, pl, v.Generation))
	}
	pod := *e.p
	pod.Base = nri.PodResources(r, overhead)
	p.reg.changePod(pod.ID, func(e *podEntry) { e.p = &pod })
	p.checkPodLater(pod.ID)
}

// PostUpdatePodSandbox starts the checks anew.
func (p *Plugin) PostUpdatePodSandbox(_ context.Context, sb *api.PodSandbox) error {
	_, err := guard(p, call[struct{}]{
		event:   metrics.EventPostUpdatePodSandbox,
		subject: subject(sb, nil),
		work: func(context.Context) (struct{}, error) {
			p.checkPodLater(sb.GetId())
			return struct{}{}, nil
		},
	})
	return err
}

// checkPodLater brings the pod's cgroup to its plan at each of podChecks.
func (p *Plugin) checkPodLater(sandbox string) {
	life := p.ctx()
	for _, d := range podChecks {
		time.AfterFunc(d, func() {
			if life.Err() == nil {
				p.settleSoon(sandbox)
			}
		})
	}
}
