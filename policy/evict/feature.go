// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"encoding/json"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// Feature is one reason to evict, named as upstream's feature gates.
type Feature uint8

// The features, in the order in which they decide.
const (
	BEMemoryEvict Feature = iota
	MemoryAllocatableEvict
	MemoryEvict
	BECPUEvict
	CPUAllocatableEvict
	CPUEvict
	// NumFeatures is their number.
	NumFeatures
)

var featureNames = [NumFeatures]string{
	"BEMemoryEvict", "MemoryAllocatableEvict", "MemoryEvict", "BECPUEvict", "CPUAllocatableEvict", "CPUEvict",
}

// String is the feature's name.
func (f Feature) String() string {
	if f >= NumFeatures {
		return "unknown"
	}
	return featureNames[f]
}

// Features is a set of features; the zero value is empty.
type Features uint8

// All holds every feature.
const All Features = 1<<NumFeatures - 1

// Has reports membership.
func (s Features) Has(f Feature) bool { return f < NumFeatures && s&(1<<f) != 0 }

// With is the set with f added.
func (s Features) With(f Feature) Features {
	if f >= NumFeatures {
		return s
	}
	return s | 1<<f
}

// Wanted are the features that a complete strategy (strategy.Effective) has the thresholds for.
func Wanted(t *strategy.ResourceThresholdStrategy) (out Features) {
	if t.Enable == nil || !*t.Enable {
		return 0
	}
	add := func(f Feature, yes bool) {
		if yes {
			out = out.With(f)
		}
	}
	add(BEMemoryEvict, t.MemoryEvictThresholdPercent != nil)
	add(MemoryEvict, t.MemoryEvictThresholdPercent != nil && t.EvictEnabledPriorityThreshold != nil)
	add(MemoryAllocatableEvict, t.MemoryAllocatableEvictThresholdPercent != nil && t.AllocatableEvictPriorityThreshold != nil)
	add(BECPUEvict, t.CPUEvictPSIThresholdPercent != nil || t.CPUEvictBESatisfactionLowerPercent != nil && t.CPUEvictBESatisfactionUpperPercent != nil)
	add(CPUAllocatableEvict, t.CPUAllocatableEvictThresholdPercent != nil && t.AllocatableEvictPriorityThreshold != nil)
	add(CPUEvict, t.CPUEvictThresholdPercent != nil && t.EvictEnabledPriorityThreshold != nil)
	return out
}

// Lacks are the strategy's fields without which a feature has no threshold, and is not among Wanted however enabled the strategy is; none for
// one that has what it needs.
func Lacks(t *strategy.ResourceThresholdStrategy, f Feature) (fields []string) {
	need := func(set bool, field string) {
		if !set {
			fields = append(fields, field)
		}
	}
	switch f {
	case BEMemoryEvict, MemoryEvict:
		need(t.MemoryEvictThresholdPercent != nil, "memoryEvictThresholdPercent")
	case MemoryAllocatableEvict:
		need(t.MemoryAllocatableEvictThresholdPercent != nil, "memoryAllocatableEvictThresholdPercent")
	case CPUAllocatableEvict:
		need(t.CPUAllocatableEvictThresholdPercent != nil, "cpuAllocatableEvictThresholdPercent")
	case CPUEvict:
		need(t.CPUEvictThresholdPercent != nil, "cpuEvictThresholdPercent")
	case BECPUEvict:
		if t.CPUEvictPSIThresholdPercent == nil { // else it needs no other
			need(t.CPUEvictBESatisfactionLowerPercent != nil, "cpuEvictBESatisfactionLowerPercent")
			need(t.CPUEvictBESatisfactionUpperPercent != nil, "cpuEvictBESatisfactionUpperPercent")
		}
	case NumFeatures:
	}
	switch f {
	case MemoryEvict, CPUEvict:
		need(t.EvictEnabledPriorityThreshold != nil, "evictEnabledPriorityThreshold")
	case MemoryAllocatableEvict, CPUAllocatableEvict:
		need(t.AllocatableEvictPriorityThreshold != nil, "allocatableEvictPriorityThreshold")
	case BEMemoryEvict, BECPUEvict, NumFeatures:
	}
	return fields
}

// DecodePolicy reads the annotation koordinator.sh/eviction-policy, a JSON list of feature names such as
// ["BEMemoryEvict"]: the features that may evict the pod. Names that are no feature of ours are passed over. Without the
// annotation all may; a malformed one allows none and is not ok.
func DecodePolicy(value string, present bool) (allowed Features, ok bool) {
	if !present {
		return All, true
	}
	if len(value) > protocol.MaxValueBytes {
		return 0, false
	}
	var names []string
	if err := json.Unmarshal([]byte(value), &names); err != nil || names == nil || len(names) > protocol.MaxEntries {
		return 0, false
	}
	for _, name := range names {
		for f, known := range featureNames {
			if name == known {
				allowed = allowed.With(Feature(f))
			}
		}
	}
	return allowed, true
}
