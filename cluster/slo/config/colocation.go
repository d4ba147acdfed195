// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// Policies by which what others leave is calculated.
const (
	ByUsage           = "usage"
	ByRequest         = "request"
	ByMaxUsageRequest = "maxUsageRequest"
)

// MidStatic is the value of midReclaimMode by which mid resources are a fixed part of the node.
const MidStatic = "static"

// ColocationStrategy is one layer of colocation-config, and of a node's annotation; nil means "not given".
type ColocationStrategy struct {
	// Enable, default false. The cluster's false cannot be overruled by a node.
	Enable *bool `json:"enable,omitempty"`
	// MetricAggregateDurationSeconds, >= 1, default 300, and MetricReportIntervalSeconds, >= 1, default 60.
	MetricAggregateDurationSeconds *int64 `json:"metricAggregateDurationSeconds,omitempty"`
	MetricReportIntervalSeconds    *int64 `json:"metricReportIntervalSeconds,omitempty"`
	// MetricAggregatePolicy names the windows of percentiles, default 5m, 10m and 30m.
	MetricAggregatePolicy *slo.AggregatePolicy `json:"metricAggregatePolicy,omitempty"`
	// MetricMemoryCollectPolicy, default usageWithoutPageCache.
	MetricMemoryCollectPolicy *string `json:"metricMemoryCollectPolicy,omitempty"`
	// CPUReclaimThresholdPercent, >= 0, default 60: the part of the node beyond which nothing is given out again; Memory's is 65.
	CPUReclaimThresholdPercent    *int64 `json:"cpuReclaimThresholdPercent,omitempty"`
	MemoryReclaimThresholdPercent *int64 `json:"memoryReclaimThresholdPercent,omitempty"`
	// CPUCalculatePolicy is usage (default) or maxUsageRequest, MemoryCalculatePolicy may be request too.
	CPUCalculatePolicy    *string `json:"cpuCalculatePolicy,omitempty"`
	MemoryCalculatePolicy *string `json:"memoryCalculatePolicy,omitempty"`
	// DegradeTimeMinutes, >= 1, default 15: the age at which a report counts for nothing.
	DegradeTimeMinutes *int64 `json:"degradeTimeMinutes,omitempty"`
	// UpdateTimeThresholdSeconds, >= 1, default 300, and ResourceDiffThreshold, above 0 and up to 1, default 0.1.
	UpdateTimeThresholdSeconds *int64  `json:"updateTimeThresholdSeconds,omitempty"`
	ResourceDiffThreshold      *Number `json:"resourceDiffThreshold,omitempty"`
	// MidReclaimMode is empty or [MidStatic].
	MidReclaimMode *string `json:"midReclaimMode,omitempty"`
	// MidCPUThresholdPercent and MidMemoryThresholdPercent, 0..100, default 100.
	MidCPUThresholdPercent    *int64 `json:"midCPUThresholdPercent,omitempty"`
	MidMemoryThresholdPercent *int64 `json:"midMemoryThresholdPercent,omitempty"`
	// MidUnallocatedPercent, 0..100, default 0.
	MidUnallocatedPercent *int64 `json:"midUnallocatedPercent,omitempty"`
	// MidStaticCPUReservedPercent and MidStaticMemoryReservedPercent, 0..100, default 0.
	MidStaticCPUReservedPercent    *int64 `json:"midStaticCPUReservedPercent,omitempty"`
	MidStaticMemoryReservedPercent *int64 `json:"midStaticMemoryReservedPercent,omitempty"`
	// BatchCPUThresholdPercent and BatchMemoryThresholdPercent, >= 0, no default.
	BatchCPUThresholdPercent    *int64 `json:"batchCPUThresholdPercent,omitempty"`
	BatchMemoryThresholdPercent *int64 `json:"batchMemoryThresholdPercent,omitempty"`
	// Extensions are kept for third parties, but for [ExtensionHealth].
	Extensions map[string]json.RawMessage `json:"extensions,omitempty"`
}

// Colocation is what holds for one node, every default filled in.
type Colocation struct {
	// Enable is the cluster's and the node's.
	Enable bool
	// Aggregate, Report, Windows and Memory are the node's collect policy.
	Aggregate, Report time.Duration
	Windows           []time.Duration
	Memory            string
	// CPUReclaimPercent and MemoryReclaimPercent are the parts of the node that may be given out.
	CPUReclaimPercent, MemoryReclaimPercent int64
	// CPUPolicy and MemoryPolicy are one of the By* constants.
	CPUPolicy, MemoryPolicy string
	// Degrade is the age at which a report counts for nothing.
	Degrade time.Duration
	// UpdateAfter is the age at which a small difference is written too, DiffThreshold the difference that is always written.
	UpdateAfter   time.Duration
	DiffThreshold float64
	// MidStatic chooses the static mode with the two reserved parts.
	MidStatic                                   bool
	MidStaticCPUPercent, MidStaticMemoryPercent int64
	// MidCPUPercent and MidMemoryPercent bound mid resources, MidUnallocatedPercent is the part of what is not requested that
	// is added to them.
	MidCPUPercent, MidMemoryPercent, MidUnallocatedPercent int64
	// BatchCPUPercent and BatchMemoryPercent bound batch resources; nil is no bound.
	BatchCPUPercent, BatchMemoryPercent *int64
	// Extensions are those of all layers, each whole from the last layer that has it.
	Extensions map[string]json.RawMessage
}

// Colocation merges all layers for a node. Problems are annotations and labels that cannot be read: they are passed over.
func (c *Config) Colocation(n Node) (Colocation, []Problem) {
	merged := c.colocation.at(n)
	own, problems := ownStrategy(n)
	merged = strategy.Overlay(merged, own)
	on := c.colocation.cluster.Enable
	out := Colocation{
		Enable:               on != nil && *on && merged.Enable != nil && *merged.Enable,
		Aggregate:            seconds(merged.MetricAggregateDurationSeconds, 300),
		Report:               seconds(merged.MetricReportIntervalSeconds, 60),
		Windows:              []time.Duration{5 * time.Minute, 10 * time.Minute, 30 * time.Minute},
		Memory:               or(merged.MetricMemoryCollectPolicy, slo.MemoryWithoutPageCache),
		CPUReclaimPercent:    or(merged.CPUReclaimThresholdPercent, 60),
		MemoryReclaimPercent: or(merged.MemoryReclaimThresholdPercent, 65),
		CPUPolicy:            or(merged.CPUCalculatePolicy, ByUsage),
		MemoryPolicy:         or(merged.MemoryCalculatePolicy, ByUsage),
		Degrade:              time.Duration(or(merged.DegradeTimeMinutes, 15)) * time.Minute,
		UpdateAfter:          seconds(merged.UpdateTimeThresholdSeconds, 300),
		DiffThreshold:        float64(or(merged.ResourceDiffThreshold, 0.1)),

		MidStatic:              or(merged.MidReclaimMode, "") == MidStatic,
		MidStaticCPUPercent:    or(merged.MidStaticCPUReservedPercent, 0),
		MidStaticMemoryPercent: or(merged.MidStaticMemoryReservedPercent, 0),
		MidCPUPercent:          or(merged.MidCPUThresholdPercent, 100),
		MidMemoryPercent:       or(merged.MidMemoryThresholdPercent, 100),
		MidUnallocatedPercent:  or(merged.MidUnallocatedPercent, 0),

		BatchCPUPercent: merged.BatchCPUThresholdPercent, BatchMemoryPercent: merged.BatchMemoryThresholdPercent,
		Extensions: merged.Extensions,
	}
	if p := merged.MetricAggregatePolicy; p != nil && len(p.Durations) > 0 {
		out.Windows = nil
		for _, d := range p.Durations {
			out.Windows = append(out.Windows, time.Duration(d))
		}
	}
	return out, problems
}

// or is *v, or what holds where nothing is given.
func or[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

func seconds(v *int64, otherwise int64) time.Duration {
	return time.Duration(or(v, otherwise)) * time.Second
}

// ownStrategy is what a node says of itself: its annotation, and over it its labels.
func ownStrategy(n Node) (ColocationStrategy, []Problem) {
	var out ColocationStrategy
	var problems []Problem
	if text, given := n.Annotations[protocol.AnnotationColocationStrategy]; given {
		out, problems = annotated(text)
	}
	for _, l := range []struct {
		key  string
		to   **int64
		most float64
	}{
		{protocol.LabelCPUReclaimRatio, &out.CPUReclaimThresholdPercent, maxPercent},
		{protocol.LabelMemoryReclaimRatio, &out.MemoryReclaimThresholdPercent, maxPercent},
		{protocol.LabelMidStaticCPUReserved, &out.MidStaticCPUReservedPercent, 100},
		{protocol.LabelMidStaticMemoryReserved, &out.MidStaticMemoryReservedPercent, 100},
	} {
		text, given := n.Labels[l.key]
		if !given {
			continue
		}
		ratio, err := strconv.ParseFloat(text, 64)
		if percent := math.Round(ratio * 100); err == nil && percent >= 0 && percent <= l.most {
			whole := int64(percent)
			*l.to = &whole
			continue
		}
		problems = append(problems, Problem{Key: l.key,
			Err: fmt.Errorf("%w: %.60q, want a ratio of 0..%g", strategy.ErrRange, text, l.most/100)})
	}
	return out, problems
}

// annotated reads a node's annotation, all of it or nothing.
func annotated(text string) (ColocationStrategy, []Problem) {
	const key = protocol.AnnotationColocationStrategy
	doc, err := document(text)
	if err != nil {
		return ColocationStrategy{}, []Problem{{Key: key, Err: err}}
	}
	var s ColocationStrategy
	err = doc.Decode(&s)
	var wrong []strategy.FieldError
	if err == nil {
		wrong = checkColocation(s, "")
	}
	if problems := problemsOf(key, doc, wrong, err); len(problems) > 0 {
		return ColocationStrategy{}, problems
	}
	return s, nil
}
