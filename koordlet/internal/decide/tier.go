// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// tier is what the cgroup of Kubernetes' BestEffort class must have: a quota while suppression works by one, and none
// again afterwards. The kubelet never writes a quota there. A quota that is not ours stays; so does ours while nothing was
// measured, as right after a start: the kernel's may be younger than what the state remembers.
func tier(f *Facts, s *State, held *suppress.Output) plan.Plan {
	dir := f.bestEffort()
	if dir == "" || held.Mode != suppress.Quota && !s.TierHeld {
		return nil
	}
	if held.Mode == suppress.Quota && s.TierHeld && !held.Allowance.OK && !held.Cut {
		return nil
	}
	quota := unit.Micros(unit.Unlimited)
	if held.Mode == suppress.Quota {
		quota = held.Quota
	}
	s.TierHeld = held.Mode == suppress.Quota
	return plan.Plan{{
		Target: plan.Target{Level: plan.LevelQoS, Cgroup: dir}, Knob: plan.CPUQuota, Value: plan.Int(int64(quota)),
		Owner: protocol.FeatureBatch, Reason: held.Reason,
	}}
}

// bestEffort is the cgroup of the class, as its pods tell; empty without one.
func (f *Facts) bestEffort() string {
	for i := range f.Members {
		if p := f.Members[i].Pod; p.KubeQoS == protocol.KubeBestEffort {
			return p.QoSCgroup
		}
	}
	return ""
}
