// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import (
	"fmt"
	"slices"
	"strings"
)

// PodLimits are the annotations that move a node's knobs and that a namespace's pods may carry. The zero value allows none.
//
// Written as a list separated by commas: cpuBurst, cpuQOS, memoryQOS, blkioQOS, networkQOS, resctrl, oom-score-adj, which may
// have a lower bound (oom-score-adj>=0); "*" is all of them, "none" is none. A later item overrides an earlier one.
type PodLimits struct {
	// Allowed are the names above.
	Allowed []string
	// OOMScoreAdjMin is the lowest oom-score-adj, where that is allowed.
	OOMScoreAdjMin int
}

const (
	oomScoreAdjName = "oom-score-adj"
	oomScoreAdjLow  = -1000
	allLimits       = "*"
	noLimits        = "none"
)

// limitedKeys are the names of [PodLimits] and the annotations that they stand for.
var limitedKeys = [...]struct{ name, key string }{
	{"blkioQOS", AnnotationBlkIOQOS}, {"cpuBurst", AnnotationCPUBurst}, {"cpuQOS", AnnotationCPUQOS},
	{"memoryQOS", AnnotationMemoryQOS}, {"networkQOS", AnnotationNetworkQOS}, {oomScoreAdjName, AnnotationOOMScoreAdj},
	{oomScoreAdjName, AnnotationOOMScoreAdjSpec}, {"resctrl", AnnotationResctrl},
}

// DefaultPodLimits are those of a namespace that says nothing: everything but an oom-score-adj below zero, which would make
// other pods the kernel's victims.
func DefaultPodLimits() PodLimits {
	return PodLimits{Allowed: limitNames(), OOMScoreAdjMin: 0}
}

// LimitName is the name in [PodLimits] that stands for an annotation, "" when it is not limited.
func LimitName(key string) string {
	for _, l := range limitedKeys {
		if l.key == key {
			return l.name
		}
	}
	return ""
}

// limitNames are all names, sorted.
func limitNames() []string {
	var out []string
	for _, l := range limitedKeys {
		if !slices.Contains(out, l.name) {
			out = append(out, l.name)
		}
	}
	slices.Sort(out)
	return out
}

// ParsePodLimits reads the annotation [AnnotationPodLimits].
func ParsePodLimits(s string) (PodLimits, error) {
	if len(s) > MaxValueBytes {
		return PodLimits{}, errTooLong(s)
	}
	var out PodLimits
	all, low := limitNames(), oomScoreAdjLow
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		switch {
		case item == allLimits:
			out.Allowed, low = slices.Clone(all), oomScoreAdjLow
			continue
		case item == noLimits, item == "" && s == "":
			out.Allowed = nil
			continue
		}
		name, bound, bounded := strings.Cut(item, ">=")
		if !slices.Contains(all, name) || bounded && name != oomScoreAdjName {
			return PodLimits{}, fmt.Errorf("%s: want *, none, or some of %s", quote(item), strings.Join(all, ", "))
		}
		if name == oomScoreAdjName {
			low = oomScoreAdjLow
		}
		if bounded {
			v, err := ParseOOMScoreAdj(bound)
			if err != nil {
				return PodLimits{}, fmt.Errorf("%s: %w", oomScoreAdjName, err)
			}
			low = v
		}
		if !slices.Contains(out.Allowed, name) {
			out.Allowed = append(out.Allowed, name)
		}
	}
	slices.Sort(out.Allowed)
	if slices.Contains(out.Allowed, oomScoreAdjName) {
		out.OOMScoreAdjMin = low
	}
	return out, nil
}

// Check says why an annotation is not allowed; "" when it is, or is none that is limited. A value that cannot be read is
// nobody's business here: the node ignores it.
func (l PodLimits) Check(key, value string) string {
	name := LimitName(key)
	if name == "" {
		return ""
	}
	if !slices.Contains(l.Allowed, name) {
		return name + " is not allowed here"
	}
	if name == oomScoreAdjName {
		if low, ok := lowestOOMScoreAdj(key, value); ok && low < l.OOMScoreAdjMin {
			return fmt.Sprintf("%s %d, at least %d is allowed here", name, low, l.OOMScoreAdjMin)
		}
	}
	return ""
}

// lowestOOMScoreAdj is the lowest value that either annotation asks for.
func lowestOOMScoreAdj(key, value string) (int, bool) {
	if len(value) > MaxValueBytes {
		return 0, false
	}
	if key == AnnotationOOMScoreAdj {
		v, err := ParseOOMScoreAdj(value)
		return v, err == nil
	}
	byContainer, err := ParseOOMScoreAdjSpec(value)
	if err != nil || len(byContainer) == 0 {
		return 0, false
	}
	low := 1000
	for _, v := range byContainer {
		low = min(low, v)
	}
	return low, true
}
