// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockerproxy

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// withBase is a pod that has just come, with what the kubelet asked for it: Docker's API does not tell, but the kubelet
// has made the pod's cgroup before, and nothing of ours stands in it yet.
func (p *Proxy) withBase(pod *workload.Pod) *workload.Pod {
	if known, ok := p.engine.KnownPod(pod.ID); ok {
		out := *pod
		out.Base = known.Base
		return &out
	}
	if pod.Cgroup == "" || pod.KubeQoS == protocol.KubeBestEffort {
		return pod // which has no limits
	}
	read := func(k plan.Knob) (out unit.Opt) {
		if v, err := p.o.Read(plan.ID{Target: pod.Target(), Knob: k}); err == nil && v.Int() > 0 && v.Int() < noLimit {
			out = unit.Some(v.Int())
		}
		return out
	}
	out := *pod
	if out.Base.Quota = read(plan.CPUQuota); out.Base.Quota.Set {
		out.Base.Period = read(plan.CPUPeriod)
	}
	out.Base.MemoryLimit = read(plan.MemoryLimit)
	return &out
}

// noLimit is above every limit that is one: v1 shows "none" as the largest number of pages.
const noLimit = 1 << 62

// sum gives a pod that was there before us what its containers ask for, as the kubelet adds it up: in its cgroup may
// stand values of ours. One container without a limit leaves the pod without.
func sum(pod *workload.Pod, containers []*workload.Container) {
	if pod.KubeQoS == protocol.KubeBestEffort || len(containers) == 0 {
		return
	}
	quota, memory := int64(0), int64(0)
	limited, bounded := true, true
	for _, c := range containers {
		if q := c.Base.Quota; q.Set && q.V > 0 {
			quota += q.V * int64(unit.CFSPeriod) / max(c.Base.Period.Or(int64(unit.CFSPeriod)), 1)
		} else {
			limited = false
		}
		if m := c.Base.MemoryLimit; m.Set && m.V > 0 {
			memory += m.V
		} else {
			bounded = false
		}
	}
	if limited {
		pod.Base.Quota, pod.Base.Period = unit.Some(quota), unit.Some(int64(unit.CFSPeriod))
	}
	if bounded {
		pod.Base.MemoryLimit = unit.Some(memory)
	}
}
