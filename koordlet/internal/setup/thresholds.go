// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/agent"
	policy "github.com/koord-rt/koord-rt/policy/evict"
)

// thresholdKey is where a cluster sets what evictions need.
const thresholdKey = "key resource-threshold-config of ConfigMap slo-controller-config"

// withoutThreshold says what a feature of evictions lacks that is switched on by its name, in the configuration or as one of upstream's
// gates; "" where it lacks nothing. One that is on because all are by default is nobody's wish.
func withoutThreshold(c *config.Evict, t *strategy.ResourceThresholdStrategy, f policy.Feature) string {
	if c.Mode == config.ModeOff || !slices.Contains(c.Features, f.String()) {
		return ""
	}
	lacks := policy.Lacks(t, f)
	if len(lacks) == 0 {
		return ""
	}
	return f.String() + " is on, but no threshold is set: " + strings.Join(lacks, " and ") + " of resourceUsedThresholdWithBE (" + thresholdKey + ")"
}

// unset says it of all features.
func unset(c *config.Evict, t *strategy.ResourceThresholdStrategy) (out []string) {
	for f := range policy.NumFeatures {
		if why := withoutThreshold(c, t, f); why != "" {
			out = append(out, why)
		}
	}
	return out
}

// unsetLoops are those features as loops, which evict nobody.
func unsetLoops(c *config.Evict, l *agent.Look) (out []status.Loop) {
	if len(c.Features) == 0 {
		return nil
	}
	t := l.Facts.View.Strategy.Threshold()
	for f := range policy.NumFeatures {
		if why := withoutThreshold(c, &t, f); why != "" {
			out = append(out, status.Loop{Name: f.String(), State: status.StateOff, Decision: why, At: l.Wall})
		}
	}
	return out
}
