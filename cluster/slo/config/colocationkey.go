// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// Bounds of what has none of its own, so that sums stay far from overflow: a percentage, and a time (a year).
const (
	maxPercent = 10_000
	maxSeconds = 366 * 24 * 3600
)

// colocationKey is colocation-config.
type colocationKey struct {
	ColocationStrategy
	NodeConfigs []struct {
		profile
		ColocationStrategy
	} `json:"nodeConfigs,omitempty"`
}

func decodeColocation(doc strategy.Document) (layers[ColocationStrategy], []strategy.FieldError, error) {
	var k colocationKey
	if err := doc.Decode(&k); err != nil {
		return layers[ColocationStrategy]{}, nil, err
	}
	var nodes []entry[ColocationStrategy]
	for _, e := range k.NodeConfigs {
		nodes = append(nodes, entry[ColocationStrategy]{e.profile, e.ColocationStrategy})
	}
	l, wrong := build(k.ColocationStrategy, ColocationStrategy{}, "", "nodeConfigs", nodes, checkColocation)
	return l, wrong, nil
}

// checkColocation checks every given field.
func checkColocation(s ColocationStrategy, path string) []strategy.FieldError {
	c := &checker{prefix: path}
	c.between("metricAggregateDurationSeconds", s.MetricAggregateDurationSeconds, 1, maxSeconds)
	c.between("metricReportIntervalSeconds", s.MetricReportIntervalSeconds, 1, maxSeconds)
	if p := s.MetricAggregatePolicy; p != nil {
		for i, d := range p.Durations {
			if time.Duration(d) < time.Second { // the node leaves out what is too long for it, and says so
				c.fail("metricAggregatePolicy.durations"+index(i), "%w: %s, want at least 1s", strategy.ErrRange, time.Duration(d))
			}
		}
	}
	c.oneOf("metricMemoryCollectPolicy", s.MetricMemoryCollectPolicy, slo.MemoryWithoutPageCache, slo.MemoryWithHotPageCache,
		slo.MemoryWithPageCache)
	c.between("cpuReclaimThresholdPercent", s.CPUReclaimThresholdPercent, 0, maxPercent)
	c.between("memoryReclaimThresholdPercent", s.MemoryReclaimThresholdPercent, 0, maxPercent)
	c.oneOf("cpuCalculatePolicy", s.CPUCalculatePolicy, ByUsage, ByMaxUsageRequest)
	c.oneOf("memoryCalculatePolicy", s.MemoryCalculatePolicy, ByUsage, ByRequest, ByMaxUsageRequest)
	c.between("degradeTimeMinutes", s.DegradeTimeMinutes, 1, maxSeconds/60)
	c.between("updateTimeThresholdSeconds", s.UpdateTimeThresholdSeconds, 1, maxSeconds)
	if d := s.ResourceDiffThreshold; d != nil && (*d <= 0 || *d > 1) {
		c.fail("resourceDiffThreshold", "%w: %g, want above 0 and up to 1", strategy.ErrRange, *d)
	}
	c.oneOf("midReclaimMode", s.MidReclaimMode, "", MidStatic)
	c.between("midCPUThresholdPercent", s.MidCPUThresholdPercent, 0, 100)
	c.between("midMemoryThresholdPercent", s.MidMemoryThresholdPercent, 0, 100)
	c.between("midUnallocatedPercent", s.MidUnallocatedPercent, 0, 100)
	c.between("midStaticCPUReservedPercent", s.MidStaticCPUReservedPercent, 0, 100)
	c.between("midStaticMemoryReservedPercent", s.MidStaticMemoryReservedPercent, 0, 100)
	c.between("batchCPUThresholdPercent", s.BatchCPUThresholdPercent, 0, maxPercent)
	c.between("batchMemoryThresholdPercent", s.BatchMemoryThresholdPercent, 0, maxPercent)
	if text, given := s.Extensions[ExtensionHealth]; given {
		_, wrong := decodeHealth(text, path)
		c.errs = append(c.errs, wrong...)
	}
	return c.errs
}

// checker gathers what is wrong below a prefix.
type checker struct {
	prefix string
	errs   []strategy.FieldError
}

func (c *checker) fail(path, format string, args ...any) {
	c.errs = append(c.errs, strategy.FieldError{Path: c.prefix + path, Err: fmt.Errorf(format, args...)})
}

func (c *checker) between(path string, v *int64, low, high int64) {
	if v != nil && (*v < low || *v > high) {
		c.fail(path, "%w: %d, want %d..%d", strategy.ErrRange, *v, low, high)
	}
}

func (c *checker) oneOf(path string, v *string, allowed ...string) {
	if v == nil {
		return
	}
	for _, a := range allowed {
		if *v == a {
			return
		}
	}
	c.fail(path, "%w: %.60q, want %s", strategy.ErrRange, *v, strings.Trim(strings.Join(allowed, ", "), ", "))
}

func (c *checker) ratio(path string, v *Number, low, high Number) {
	if v != nil && (*v < low || *v > high) {
		c.fail(path, "%w: %g, want %g..%g", strategy.ErrRange, *v, low, high)
	}
}
