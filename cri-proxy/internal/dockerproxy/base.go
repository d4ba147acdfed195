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
