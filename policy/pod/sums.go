// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/draft"
)

// Sums is what the registry adds up over the living containers of a pod. The zero value means that none is known yet.
type Sums struct {
	// Count is the number of containers added.
	Count int
	// Min, Low and High are the sums of the containers' planned memory.min, memory.low and memory.high in bytes.
	Min, Low, High unit.Bytes
	// Tight says that a container protects more than nine tenths of its own limit.
	Tight bool
}

// Add adds one container with the plan that container.Decide gave for it. Observed settings do not count.
func (s *Sums) Add(pl plan.Plan, c *workload.Container) {
	s.Count++
	limit, minimum := c.Base.MemLimit(), unit.Bytes(0)
	for i := range pl {
		if pl[i].Observe {
			continue
		}
		n := unit.Bytes(pl[i].Value.Int())
		switch pl[i].Knob {
		case plan.MemoryMin:
			minimum = n
			s.Min += n
		case plan.MemoryLow:
			s.Low += n
		case plan.MemoryHigh:
			s.High += n
		case plan.MemoryLimit:
			limit = n
		}
	}
	s.Tight = s.Tight || draft.Tight(minimum, limit)
}

// Protection is what one pod protects, with the ancestors that must carry it.
type Protection struct {
	// QoSCgroup is the pod's parent, KubepodsCgroup the root of all pods; they are the same for Guaranteed pods.
	QoSCgroup, KubepodsCgroup string
	// Min and Low are the pod's memory.min and memory.low in bytes.
	Min, Low unit.Bytes
}

// Ancestors returns memory.min and memory.low of the QoS directories and the kubepods root: each the sum over the pods
// below it, because a protection without its ancestors' has no effect against the rest of the node. Every directory of
// the list gets a value, also 0, so that protection goes when pods go. A sum ends at the node's share
// (Limits.MemoryNodePercent): what stands on a directory holds for all below it, and the kernel divides it among those who ask
// for more. Nil when the kubelet's MemoryQoS owns these files.
//
// Example: a Burstable pod with 1 GiB and a Guaranteed one with 2 GiB give burstable 1 GiB and kubepods 3 GiB.
func Ancestors(v *node.View, pods []Protection) plan.Plan {
	mode := v.Modes[protocol.FeatureMemory]
	if v.Kernel.KubeletMemoryQoS || mode == node.Off || len(pods) == 0 {
		return nil
	}
	var dirs []Protection
	for i := range pods {
		p := &pods[i]
		dirs = add(dirs, p.KubepodsCgroup, p)
		if p.QoSCgroup != p.KubepodsCgroup {
			dirs = add(dirs, p.QoSCgroup, p)
		}
	}
	most := draft.NodeShare(v)
	out := make(plan.Plan, 0, 2*len(dirs))
	for i := range dirs {
		t := plan.Target{Level: plan.LevelQoS, Cgroup: dirs[i].QoSCgroup}
		for _, k := range [...]plan.Knob{plan.MemoryMin, plan.MemoryLow} {
			n := dirs[i].Min
			if k == plan.MemoryLow {
				n = dirs[i].Low
			}
			why := "sum of the pods below"
			if most > 0 && n > most {
				n, why = most, why+draft.NodeShareWhy
			}
			if v.Kernel.Has(k) && !v.Ceded.Has(k) {
				out = append(out, plan.Setting{
					Target: t, Knob: k, Value: plan.Int(n), Owner: protocol.FeatureMemory,
					Reason: why, Observe: mode == node.Observe,
				})
			}
		}
	}
	return out
}

// add adds a pod's protection to the entry of a directory.
func add(dirs []Protection, cgroup string, p *Protection) []Protection {
	if cgroup == "" {
		return dirs
	}
	for i := range dirs {
		if dirs[i].QoSCgroup == cgroup {
			dirs[i].Min += p.Min
			dirs[i].Low += p.Low
			return dirs
		}
	}
	return append(dirs, Protection{QoSCgroup: cgroup, Min: p.Min, Low: p.Low})
}
