// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/draft"
)

// memory plans memory QoS. Values of 0 (no protection, no throttling) are the kernel's own and are not planned, and keys
// that the kubelet's MemoryQoS already set to more are left to it. Formulas: draft.Memory, draft.Request.
//
// What the memory loop says of memory.high (View.Dynamic.MemoryHigh) stands in its place, also without memory QoS.
//
// Example (LSR of M5, 8 GiB, 100/100/120 %): min and low 8589934592, high 10307919872.
func (j *job) memory() {
	if !j.Plans(protocol.FeatureMemory) {
		return
	}
	m, ok := draft.MemoryOf(j.View, j.Pod)
	loop := j.View.Dynamic.MemoryHigh[j.c.ID]
	if !ok {
		if j.takesMemory(plan.MemoryHigh, loop.Bytes) {
			j.Set(protocol.FeatureMemory, plan.MemoryHigh, plan.Int(loop.Bytes), loop.Reason)
		}
		return
	}
	limit := j.memoryLimit()
	var request unit.Bytes
	var how string
	if m.MinPercent > 0 || m.LowPercent > 0 || draft.Num(m.QOS.ThrottlingPercent) > 0 {
		request, how = draft.Request(j.View, j.Pod, j.c, &j.batch, j.hasBatch)
	}
	minimum, low := m.Protection(request)
	known := how
	if m.Beyond(request) {
		known += draft.NodeShareWhy
	}
	high := m.High(j.View, j.Pod.Class(), request, limit, low)
	if j.takesMemory(plan.MemoryMin, minimum) {
		j.Set(protocol.FeatureMemory, plan.MemoryMin, plan.Int(minimum), draft.PercentWhy(m.MinPercent, "request", m.Why, known, m.MinCapped))
	}
	if j.takesMemory(plan.MemoryLow, low) {
		percent, capped, of := m.LowPercent, m.LowCapped, "request"
		if m.LowPercent < m.MinPercent {
			percent, capped, of = m.MinPercent, m.MinCapped, "request, raised to memory.min" // low below min has no effect
		}
		j.Set(protocol.FeatureMemory, plan.MemoryLow, plan.Int(low), draft.PercentWhy(percent, of, m.Why, known, capped))
	}
	if j.takesMemory(plan.MemoryHigh, loop.Bytes) {
		j.Set(protocol.FeatureMemory, plan.MemoryHigh, plan.Int(loop.Bytes), loop.Reason)
	} else if j.takesMemory(plan.MemoryHigh, high) {
		j.Set(protocol.FeatureMemory, plan.MemoryHigh, plan.Int(high), j.highWhy(&m, limit, how))
	}
	j.Reclaim(&m)
}

// memoryLimit is the limit that will stand in the kernel, 0 for none.
func (j *job) memoryLimit() unit.Bytes {
	limit, why := draft.MemoryLimit(j.c.Base.MemoryLimit, &j.batch, j.hasBatch, j.Active())
	if why == "" && limit == 0 {
		return j.View.Pods[j.Pod.UID].Containers[j.c.Name].MemoryLimit
	}
	return limit
}

// takesMemory reports whether a protection or throttle is worth a setting.
func (j *job) takesMemory(k plan.Knob, n unit.Bytes) bool {
	if n <= 0 || !j.Takes(protocol.FeatureMemory, k) {
		return false
	}
	asks, kubelets := j.c.Base.Unified[k.UnifiedKey()]
	return !kubelets || asks == unprotected
}

// unprotected is what a kubelet with MemoryQoS asks for that protects nothing: Kubernetes 1.36 and later without the memoryReservationPolicy
// TieredReservation.
const unprotected = "0"

func (j *job) highWhy(m *draft.Memory, limit unit.Bytes, how string) string {
	of := "limit"
	switch {
	case draft.IsRequestRange(j.View):
		of = "request to limit"
	case limit <= 0:
		if of = "node allocatable, no limit"; j.View.MemAllocatable >= j.View.MemCapacity {
			of = "node memory, no limit" // the kubelet reserves nothing, or has not told
		}
	}
	if of != "request to limit" {
		how = ""
	}
	return draft.PercentWhy(unit.Percent(draft.Num(m.QOS.ThrottlingPercent)), of, m.Why, how, false)
}
