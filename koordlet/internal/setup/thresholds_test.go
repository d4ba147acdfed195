// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/agent"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/policy/policytest"
)

// A feature that is switched on by its name and has no threshold is a loop that says so; one that has all it needs, or that nobody has
// named, is none.
func TestFeaturesWithoutThreshold(t *testing.T) {
	t.Parallel()
	const where = " of resourceUsedThresholdWithBE (key resource-threshold-config of ConfigMap slo-controller-config)"
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	all := []string{"MemoryEvict", "CPUEvict", "BEMemoryEvict"}
	for name, tc := range map[string]struct {
		yaml  string
		mode  config.Mode
		named []string
		want  map[string]string
	}{
		"by default, all":   {"{resourceUsedThresholdWithBE: {enable: true}}", config.ModeActive, nil, nil},
		"evictions are off": {"{resourceUsedThresholdWithBE: {enable: true}}", config.ModeOff, all, nil},
		"no priority": {"{resourceUsedThresholdWithBE: {enable: true, cpuEvictThresholdPercent: 90}}", config.ModeActive, all, map[string]string{
			"MemoryEvict": "MemoryEvict is on, but no threshold is set: evictEnabledPriorityThreshold" + where,
			"CPUEvict":    "CPUEvict is on, but no threshold is set: evictEnabledPriorityThreshold" + where,
		}},
		"no threshold, only observed": {"{resourceUsedThresholdWithBE: {enable: true, evictEnabledPriorityThreshold: 5999}}", config.ModeObserve, all, map[string]string{
			"CPUEvict": "CPUEvict is on, but no threshold is set: cpuEvictThresholdPercent" + where,
		}},
		"everything": {
			"{resourceUsedThresholdWithBE: {enable: true, evictEnabledPriorityThreshold: 5999, cpuEvictThresholdPercent: 90}}", config.ModeActive, all, nil,
		},
	} {
		cfg := config.DefaultKoordlet()
		cfg.Evict.Mode, cfg.Evict.Features = tc.mode, tc.named
		l := &agent.Look{Wall: at, Facts: decide.Facts{View: policytest.YAML(t, policytest.View(), tc.yaml)}}
		var got map[string]string
		for _, one := range loops(&cfg, true, "", l) {
			if one.State != status.StateOff || !strings.HasSuffix(one.Name, "Evict") {
				continue
			}
			if got == nil {
				got = map[string]string{}
			}
			got[one.Name] = one.Decision
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
