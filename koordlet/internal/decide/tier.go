// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// tier is what the cgroup of Kubernetes' BestEffort class must have: a quota while suppression works by one, and none
// again afterwards. The kubelet never writes a quota there. A quota that is not ours stays; so does ours while nothing was
// measured, as right after a start: the kernel's may be younger than what the state remembers. The directory outlives its pods, and
// so does what we know of it: the next pod would find our quota.
func tier(f *Facts, s *State, held *suppress.Output) plan.Plan {
	dir := f.bestEffort()
	if dir == "" {
		dir = s.TierDir
	}
	mode := f.View.Mode(protocol.FeatureBatch)
	wanted := held.Mode == suppress.Quota && mode != node.Off && !f.View.Ceded.Has(plan.CPUQuota)
	ours := wanted && mode == node.Active
	if dir == "" || !wanted && !s.TierHeld {
		return nil
	}
	if ours && s.TierHeld && !held.Allowance.OK && !held.Cut {
		return nil
	}
	quota := unit.Micros(unit.Unlimited)
	if wanted && (ours || !s.TierHeld) {
		quota = held.Quota
	}
	observe := wanted && !ours && !s.TierHeld // what was ours goes back first
	if s.TierHeld && !ours {
		s.owe(HeldSetting{Cgroup: dir, Knob: plan.CPUQuota.String()}, f.Now)
	}
	s.TierHeld, s.TierDir = ours, ""
	if s.TierHeld {
		s.TierDir = dir
	}
	return plan.Plan{{
		Target: plan.Target{Level: plan.LevelQoS, Cgroup: dir}, Knob: plan.CPUQuota, Value: plan.Int(int64(quota)),
		Owner: protocol.FeatureBatch, Reason: held.Reason, Observe: observe,
	}}
}

// Resume takes the quota that stands in the tier's cgroup for the one that was decided last: the state is kept some seconds later than a quota
// is written, and after a kill it grows from what stands, by steps. One that is not there, or cannot be read, leaves the state's.
func (s *State) Resume(read func(plan.ID) (plan.Value, error)) {
	if !s.TierHeld || s.Suppress.Mode != suppress.Quota {
		return
	}
	v, err := read(plan.ID{Target: plan.Target{Level: plan.LevelQoS, Cgroup: s.TierDir}, Knob: plan.CPUQuota})
	if err == nil && v.Int() > 0 {
		s.Suppress.Quota = unit.Micros(v.Int())
	}
}

func (f *Facts) bestEffort() string { return BestEffort(f.Members) }

// BestEffort is the cgroup of Kubernetes' BestEffort class, as its pods tell, or those of any other; empty without one.
func BestEffort(members []engine.Member) string {
	for i := range members {
		if p := members[i].Pod; p.KubeQoS == protocol.KubeBestEffort {
			return p.QoSCgroup
		}
	}
	return roots(members).BestEffort
}
