// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"github.com/koord-rt/koord-rt/api/protocol"
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
	return ok && m.Used.OK && m.Capacity > 0 && m.Used.V > threshold.Of(m.Capacity)
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
	if !m.Used.OK || m.Capacity <= 0 {
		r.quiet(f, "no decision: the node's memory use was not measured")
		return
	}
	state := "node memory " + figure.BytesOf(m.Used.V, m.Capacity)
	if !r.memoryOver() {
		r.quiet(f, state+" is not above "+figure.Percent(threshold.Fraction()))
		return
	}
	runMemory(r, &rule[unit.Bytes]{
		feature: f, need: m.Used.V - lower.Of(m.Capacity), belongs: belongs, anyone: true,
		cause: state + " is above " + figure.Percent(threshold.Fraction()) + ", down to " + figure.Percent(lower.Fraction()),
		gives: usedMemory, greed: func(p *Pod) float64 { return float64(p.MemoryUsed.V) },
	})
}

func usedMemory(p *Pod) (unit.Bytes, bool) { return p.MemoryUsed.V, p.MemoryUsed.OK }

// bands are the priority classes that request batch and mid resources.
var bands = [...]protocol.PriorityClass{protocol.PriorityBatch, protocol.PriorityMid}

// memoryBooked is MemoryAllocatableEvict.
func (r *round) memoryBooked() {
	most, thr := r.t.AllocatableEvictPriorityThreshold, r.t.MemoryAllocatableEvictThresholdPercent
	if !r.has(MemoryAllocatableEvict) || most == nil || thr == nil {
		return
	}
	threshold := unit.Percent(*thr)
	lower := lowerOf(threshold, r.t.MemoryAllocatableEvictLowerPercent)
	for _, band := range bands {
		allocatable := r.in.Memory.BatchAllocatable
		if band == protocol.PriorityMid {
			allocatable = r.in.Memory.MidAllocatable
		}
		belongs := booked(band, *most)
		var sum unit.Bytes
		for i := range r.in.Pods {
			if belongs(&r.in.Pods[i]) {
				sum += max(r.in.Pods[i].MemoryRequest, 0)
			}
		}
		what := band.String() + " pods request " + figure.Bytes(sum) + " of " + figure.Bytes(allocatable.V) + " allocatable"
		if !r.overbooked(MemoryAllocatableEvict, what, allocatable.OK && allocatable.V > 0, sum > 0, sum > threshold.Of(allocatable.V), threshold) {
			continue
		}
		runMemory(r, &rule[unit.Bytes]{
			feature: MemoryAllocatableEvict, need: sum - lower.Of(allocatable.V), cause: what + ", above " + figure.Percent(threshold.Fraction()),
			belongs: func(p *Pod) bool { return belongs(p) && p.EvictionEnabled },
			gives:   func(p *Pod) (unit.Bytes, bool) { return p.MemoryRequest, true },
			greed:   func(p *Pod) float64 { return float64(p.MemoryUsed.V) },
		})
	}
}

// booked is the test for pods of a band whose priority is at most the threshold.
func booked(band protocol.PriorityClass, most int32) func(*Pod) bool {
	return func(p *Pod) bool { return p.Band == band && p.Priority <= most }
}

// overbooked reports whether requests are above the threshold, and keeps the decision when they are not. Without
// allocatable, or with none at all (a node that has stopped reporting offers none), nobody is evicted.
func (r *round) overbooked(f Feature, what string, known, any, over bool, threshold unit.Percent) bool {
	switch {
	case !any:
		return false
	case !known:
		r.quiet(f, "no decision: "+what)
		return false
	case !over:
		r.quiet(f, what+", not above "+figure.Percent(threshold.Fraction()))
		return false
	}
	return true
}
