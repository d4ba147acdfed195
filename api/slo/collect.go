// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package slo

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Bounds and defaults of the collect policy (koordinator-node.md §1.9).
const (
	DefaultAggregate = 5 * time.Minute
	MinAggregate     = time.Minute
	DefaultReport    = time.Minute
	MinReport        = 30 * time.Second
	// MaxWindow is the longest window that the node remembers.
	MaxWindow = 30 * time.Minute
	// MaxReport bounds the interval: readers take a report older than that for none.
	MaxReport = time.Hour

	maxWindows = 8
)

// Collect is a collect policy with every default filled in and every value within its bounds.
type Collect struct {
	// Aggregate is what usages are averaged over, Report the time between two reports.
	Aggregate, Report time.Duration
	// Windows of the percentiles, as given.
	Windows []time.Duration
	// Memory is one of the Memory* constants.
	Memory string
	// Containers asks for the containers of each pod.
	Containers bool
	// Problems are the values that were held within their bounds or left out, in words.
	Problems []string
}

// DefaultCollect is the policy of a node that is told nothing.
func DefaultCollect() Collect {
	return Collect{
		Aggregate: DefaultAggregate, Report: DefaultReport, Memory: MemoryWithoutPageCache,
		Windows: []time.Duration{5 * time.Minute, 10 * time.Minute, 30 * time.Minute},
	}
}

// Normalise gives what the spec means, in either spelling. Where the spellings contradict each other the canonical one
// counts.
func (s *NodeMetricSpec) Normalise() Collect {
	out := DefaultCollect()
	p := s.MetricCollectPolicy
	if p == nil {
		p = &CollectPolicy{}
	}
	problem := func(format string, args ...any) { out.Problems = append(out.Problems, fmt.Sprintf(format, args...)) }
	seconds := func(to *time.Duration, name string, v *int64, low, high time.Duration) {
		if v == nil {
			return
		}
		*to = time.Duration(min(max(*v, int64(low/time.Second)), int64(high/time.Second))) * time.Second
		if int64(*to/time.Second) != *v {
			problem("%s: %d is held at %d", name, *v, int64(*to/time.Second))
		}
	}
	seconds(&out.Aggregate, "aggregateDurationSeconds", p.AggregateDurationSeconds, MinAggregate, MaxWindow)
	seconds(&out.Report, "collectionIntervalSeconds", s.CollectionIntervalSeconds, MinReport, MaxReport)
	out.Containers = s.CollectionIntervalSeconds != nil
	if c := s.CollectionIntervalSeconds; c != nil && p.ReportIntervalSeconds != nil && *c != *p.ReportIntervalSeconds {
		problem("metricCollectPolicy.reportIntervalSeconds and collectionIntervalSeconds differ: %d counts", *p.ReportIntervalSeconds)
	}
	seconds(&out.Report, "reportIntervalSeconds", p.ReportIntervalSeconds, MinReport, MaxReport)
	if p.ContainerMetrics != nil {
		out.Containers = *p.ContainerMetrics
	}
	if m := p.NodeMemoryCollectPolicy; m != nil {
		switch *m {
		case MemoryWithoutPageCache, MemoryWithHotPageCache, MemoryWithPageCache:
			out.Memory = *m
		default:
			problem("nodeMemoryCollectPolicy: unknown value %.60q", *m)
		}
	}
	if p.NodeAggregatePolicy != nil {
		out.Windows = p.NodeAggregatePolicy.windows(problem)
	}
	return out
}

// windows are those that the node can answer for.
func (p *AggregatePolicy) windows(problem func(format string, args ...any)) []time.Duration {
	var out []time.Duration
	for _, w := range p.Durations {
		d := time.Duration(w)
		switch {
		case d < time.Second || d > MaxWindow:
			problem("nodeAggregatePolicy: %s is left out, want 1s..%s", d, MaxWindow)
		case slices.Contains(out, d):
		case len(out) == maxWindows:
			problem("nodeAggregatePolicy: more than %d durations", maxWindows)
			return out
		default:
			out = append(out, d)
		}
	}
	return out
}

// Asked is what a NodeMetric asks of the node.
type Asked struct {
	// UID tells an object from another of the same name.
	UID string
	Collect
}

// DecodeNodeMetric reads what a stored NodeMetric asks; its status is passed over.
func DecodeNodeMetric(raw []byte) (Asked, error) {
	var o struct {
		Metadata Meta           `json:"metadata"`
		Spec     NodeMetricSpec `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return Asked{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return Asked{UID: o.Metadata.UID, Collect: o.Spec.Normalise()}, nil
}
