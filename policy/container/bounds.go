// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container

import (
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/draft"
)

// Bounds of a container's memory that would stand without the memory loop (View.Dynamic.MemoryHigh).
type Bounds struct {
	// Request is the memory request; Max memory.max, High memory.high, both 0 for none; Low the larger of memory.min and
	// memory.low. Bytes.
	Request, Max, High, Low unit.Bytes
	// WmarkRatio is 0 where the kernel reclaims at its own marks, or memory QoS has none. WmarkScale is in 0.01 %.
	WmarkRatio  unit.Percent
	WmarkScale  int64
	WmarkMinAdj int64
}

// BaseMemory is what policy/memqos takes as a container's own. The kubelet's values count where we leave them to it.
func BaseMemory(v *node.View, p *workload.Pod, c *workload.Container) Bounds {
	j := newJob(v, p, c)
	j.batch, j.hasBatch = draft.BatchOf(v, p, c.Name)
	b := Bounds{Max: j.memoryLimit(), High: j.asked(plan.MemoryHigh), Low: max(j.asked(plan.MemoryMin), j.asked(plan.MemoryLow))}
	b.Request, _ = draft.Request(v, p, c, &j.batch, j.hasBatch)
	m, ok := draft.MemoryOf(v, p)
	if !ok || !j.Writes(protocol.FeatureMemory) {
		return b
	}
	minimum, low := m.Protection(b.Request)
	if j.takesMemory(plan.MemoryMin, minimum) {
		b.Low = max(b.Low, minimum)
	}
	if j.takesMemory(plan.MemoryLow, low) {
		b.Low = max(b.Low, low)
	}
	if high := m.High(v, p.Class(), b.Request, b.Max, low); j.takesMemory(plan.MemoryHigh, high) {
		b.High = high
	}
	if !v.Kernel.Has(plan.MemoryWmarkRatio) {
		b.WmarkRatio, b.WmarkScale = unit.Percent(draft.Num(m.QOS.WmarkRatio)), draft.Num(m.QOS.WmarkScalePermill)
	}
	b.WmarkMinAdj = draft.Num(m.QOS.WmarkMinAdj)
	return b
}

// asked is what the kubelet has asked for in a unified key, 0 for nothing and for "max".
func (j *job) asked(k plan.Knob) unit.Bytes {
	text, given := j.c.Base.Unified[k.UnifiedKey()]
	if !given {
		return 0 // the error of an empty text would be made for nothing, for each container in each second
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return unit.Bytes(max(n, 0))
}
