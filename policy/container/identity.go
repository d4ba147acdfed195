// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
)

// schedIdle is SCHED_IDLE of sched(7).
const schedIdle = 5

// identity plans the container's part of the CPU identity: cpu.bvt where the kernel has it, else SCHED_IDLE for its
// process from Linux 5.4, where wake-up placement learned to see idle tasks. cpu.idle is never planned here: the runtime
// writes the weight again at each update, and the kernel refuses that while cpu.idle is 1.
func (j *job) identity() {
	id, ok := j.Identity()
	if !ok {
		return
	}
	if id.HasBvt {
		j.Set(protocol.FeatureIdentity, plan.CPUBvt, plan.Int(id.Bvt), id.Why)
	}
	if !id.Idle || !j.View.Kernel.AtLeast(5, 4) || !j.Takes(protocol.FeatureIdentity, plan.SchedPolicy) {
		return
	}
	why := id.Why + ": runs when nobody else wants the CPU"
	if j.View.Kernel.AtLeast(6, 12) {
		why = id.Why + ": wake-up placement only since Linux 6.12"
	}
	j.Set(protocol.FeatureIdentity, plan.SchedPolicy, plan.Int(schedIdle), why)
}
