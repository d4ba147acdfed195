// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/strategy"
)

func TestChanged(t *testing.T) {
	t.Parallel()
	parse := func(text string) *strategy.Spec {
		s, err := strategy.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return &s
	}
	const old = `{"resourceUsedThresholdWithBE":{"enable":true,"cpuSuppressThresholdPercent":65},"cpuBurstStrategy":{"policy":"none"}}`
	for name, tc := range map[string]struct {
		now  string
		want []string
	}{
		"nothing": {old, nil},
		"one":     {`{"resourceUsedThresholdWithBE":{"enable":true,"cpuSuppressThresholdPercent":40},"cpuBurstStrategy":{"policy":"none"}}`, []string{"resourceUsedThresholdWithBE.cpuSuppressThresholdPercent 65 -> 40"}},
		"several": {
			`{"resourceUsedThresholdWithBE":{"enable":false,"memoryEvictThresholdPercent":70},"cpuBurstStrategy":{"policy":"none"},"hostApplications":[{"name":"a"}]}`,
			[]string{
				"hostApplications", "resourceUsedThresholdWithBE.cpuSuppressThresholdPercent 65 -> -", "resourceUsedThresholdWithBE.enable true -> false",
				"resourceUsedThresholdWithBE.memoryEvictThresholdPercent - -> 70",
			},
		},
		"a part went": {`{"resourceUsedThresholdWithBE":{"enable":true,"cpuSuppressThresholdPercent":65}}`, []string{"cpuBurstStrategy.policy none -> -"}},
	} {
		if diff := cmp.Diff(tc.want, strategy.Changed(parse(old), parse(tc.now))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if got := strategy.Changed(nil, parse(old)); len(got) != 3 || got[0] != "cpuBurstStrategy.policy - -> none" {
		t.Errorf("the first one: %q", got)
	}
}
