// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// bands are the priority classes that request batch and mid resources.
var bands = [...]protocol.PriorityClass{protocol.PriorityBatch, protocol.PriorityMid}

// booking is what MemoryAllocatableEvict or CPUAllocatableEvict looks at.
type booking[T ~int64] struct {
	feature Feature
	// threshold and lower are percentages of what is allocatable; without a threshold nothing is decided.
	threshold, lower *int64
	batch, mid       unit.Measured[T]
}

func (r *round) memoryBooked() {
	m := &r.in.Memory
	ofMemory.booked(r, &booking[unit.Bytes]{
		feature: MemoryAllocatableEvict, threshold: r.t.MemoryAllocatableEvictThresholdPercent, lower: r.t.MemoryAllocatableEvictLowerPercent,
		batch: m.BatchAllocatable, mid: m.MidAllocatable,
	})
}

func (r *round) cpuBooked() {
	c := &r.in.CPU
	ofCPU.booked(r, &booking[unit.MilliCPU]{
		feature: CPUAllocatableEvict, threshold: r.t.CPUAllocatableEvictThresholdPercent, lower: r.t.CPUAllocatableEvictLowerPercent,
		batch: c.BatchAllocatable, mid: c.MidAllocatable,
	})
}

// booked compares what the pods of each band request with what the node offers them. Without allocatable, or with none at
// all (a node that has stopped reporting offers none), nobody is evicted.
func (k *kind[T]) booked(r *round, b *booking[T]) {
	most := r.t.AllocatableEvictPriorityThreshold
	if !r.has(b.feature) || most == nil || b.threshold == nil {
		return
	}
	threshold := unit.Percent(*b.threshold)
	lower, limit := lowerOf(threshold, b.lower), figure.Percent(threshold.Fraction())
	for _, band := range bands {
		allocatable := b.batch
		if band == protocol.PriorityMid {
			allocatable = b.mid
		}
		belongs := booked(band, *most)
		var sum T
		for i := range r.in.Pods {
			if p := &r.in.Pods[i]; belongs(p) {
				request, _ := k.requested(p)
				sum += max(request, 0)
			}
		}
		u := &rule[T]{
			feature: b.feature, band: band, need: sum - k.share(lower, allocatable.V), gives: k.requested,
			belongs: func(p *Pod) bool { return belongs(p) && p.EvictionEnabled }, counts: belongs,
		}
		what := band.String() + " pods request " + k.part(sum) + " of " + k.text(allocatable.V) + " allocatable"
		switch {
		case sum <= 0:
		case !allocatable.OK || allocatable.V <= 0:
			r.out.Decisions = append(r.out.Decisions, Decision{Feature: b.feature, Band: band, Rest: Unknown, Reason: "no decision: " + what})
		case sum <= k.share(threshold, allocatable.V):
			k.calm(r, u, what+", not above "+limit)
		default:
			u.cause = what + ", above " + limit
			k.run(r, u)
		}
	}
}

// booked is the test for pods of a band whose priority is at most the threshold.
func booked(band protocol.PriorityClass, most int32) func(*Pod) bool {
	return func(p *Pod) bool { return p.Band == band && p.Priority <= most }
}
