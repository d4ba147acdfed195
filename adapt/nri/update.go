// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nri

import (
	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// InUpdate reports whether an update can carry the setting. Other fields than these a runtime drops (facts §2.3).
func InUpdate(v *node.View, s *plan.Setting) bool {
	return s.Target.Level == plan.LevelContainer && (s.InResources() || v.InUnified(s.Knob))
}

// Update answers the kubelet's request r for container c with plan p, which was decided with r already in c.Base. The
// runtime merges it into the request field by field, so only what differs from the request is stated, with its final
// value, and the container's id: without the id the update would count as one of another container and the kubelet's
// values would stay. It is nil when the request stands as it is.
func Update(v *node.View, p plan.Plan, r *api.LinuxResources, c *workload.Container) *api.ContainerUpdate {
	u := &api.ContainerUpdate{ContainerId: c.ID}
	req := Resources(r)
	idle := mark.Idle(p, func(s *plan.Setting) bool { return InSpec(v, s) })
	changed := false
	for i := range p {
		s := &p[i]
		if s.Observe || !InUpdate(v, s) || s.Knob == plan.CPUShares && idle || mark.Holds(&req, s) {
			continue
		}
		changed = putUpdate(u, s) || changed
	}
	if idle {
		// The kubelet's shares must not reach cpu.weight while cpu.idle is 1. 0 is "leave alone" to the runtime, whose
		// spec has had 0 since creation.
		u.SetLinuxCPUShares(0)
		changed = true
	}
	if !changed {
		return nil
	}
	return u
}

func putUpdate(u *api.ContainerUpdate, s *plan.Setting) bool {
	n := s.Value.Int()
	switch s.Knob {
	case plan.CPUShares:
		u.SetLinuxCPUShares(uint64(max(n, 0)))
	case plan.CPUQuota:
		u.SetLinuxCPUQuota(n)
	case plan.CPUPeriod:
		u.SetLinuxCPUPeriod(n)
	case plan.CPUSetCPUs:
		u.SetLinuxCPUSetCPUs(s.Value.String())
	case plan.CPUSetMems:
		u.SetLinuxCPUSetMems(s.Value.String())
	case plan.MemoryLimit:
		u.SetLinuxMemoryLimit(n)
	default:
		key, value, ok := plan.Unified(*s)
		if ok {
			u.AddLinuxUnified(key, value)
		}
		return ok
	}
	return true
}
