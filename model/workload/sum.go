// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package workload

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

// SumBase gives a pod that was there before us, and whose resources the runtime does not tell, what its containers ask for, as
// the kubelet adds it up: in its cgroup may stand values of ours. One container without a limit leaves the pod without.
func (p *Pod) SumBase(containers []*Container) {
	if p.KubeQoS == protocol.KubeBestEffort || len(containers) == 0 {
		return
	}
	quota, memory := int64(0), int64(0)
	period := containers[0].Base.Period.Or(int64(unit.CFSPeriod)) // the kubelet has one for all
	limited, bounded := true, true
	for _, c := range containers {
		if q := c.Base.Quota; q.Set && q.V > 0 {
			own := unit.Micros(q.V)
			if of := c.Base.Period.Or(int64(unit.CFSPeriod)); of != period {
				own = own.PerCFSPeriod(unit.Micros(of)).OfPeriod(unit.Micros(period))
			}
			quota += int64(own)
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
		p.Base.Quota, p.Base.Period = unit.Some(quota), unit.Some(period)
	}
	if bounded {
		p.Base.MemoryLimit = unit.Some(memory)
	}
}
