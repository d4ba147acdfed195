// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// memoryThresholds are the marks of node memory; not ok without one.
func (r *round) memoryThresholds() (threshold, lower unit.Percent, ok bool) {
	if r.t.MemoryEvictThresholdPercent == nil {
		return 0, 0, false
	}
	threshold = unit.Percent(*r.t.MemoryEvictThresholdPercent)
	return threshold, lowerOf(threshold, r.t.MemoryEvictLowerPercent), true
}

// lowerOf is the given lower mark, or threshold − 2; never above the threshold.
func lowerOf(threshold unit.Percent, given *int64) unit.Percent {
	if given == nil {
		return max(threshold-2, 0)
	}
	return min(unit.Percent(*given), threshold)
}

// memoryOver reports that node memory is above the threshold.
func (r *round) memoryOver() bool {
	m := &r.in.Memory
	threshold, _, ok := r.memoryThresholds()
	used := m.InUse()
	return ok && used.OK && m.Capacity > 0 && used.V > threshold.Of(m.Capacity)
}

// memoryUsage is BEMemoryEvict and MemoryEvict: node memory use against the thresholds.
func (r *round) memoryUsage(f Feature) {
	m := &r.in.Memory
	threshold, lower, ok := r.memoryThresholds()
	if !r.has(f) || !ok {
		return
	}
	belongs := be
	if f == MemoryEvict {
		if r.t.EvictEnabledPriorityThreshold == nil {
			return
		}
		belongs = below(*r.t.EvictEnabledPriorityThreshold)
	}
	used := m.InUse()
	if !used.OK || m.Capacity <= 0 {
		r.unknown(f, "the node's memory use was not measured")
		return
	}
	state := "node memory " + figure.BytesOf(used.V, m.Capacity)
	if m.PerCPU > 0 {
		state += " without " + figure.Bytes(m.PerCPU) + " on free lists of CPUs"
	}
	u := &rule[unit.Bytes]{feature: f, need: used.V - lower.Of(m.Capacity), belongs: belongs, counts: anyone, gives: ofMemory.used}
	if !r.memoryOver() {
		ofMemory.calm(r, u, state+" is not above "+figure.Percent(threshold.Fraction()))
		return
	}
	u.cause = state + " is above " + figure.Percent(threshold.Fraction()) + ", down to " + figure.Percent(lower.Fraction())
	ofMemory.run(r, u)
}
