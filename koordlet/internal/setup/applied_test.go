// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"fmt"
	"testing"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/report"
)

// Each change of the NodeSLO has one line, with its generation and what it changed; what cannot be put in force has one too.
func TestOneLinePerChange(t *testing.T) {
	t.Parallel()
	spec := func(percent int64) *strategy.Spec {
		return &strategy.Spec{ResourceUsedThresholdWithBE: &strategy.ResourceThresholdStrategy{CPUSuppressThresholdPercent: &percent}}
	}
	const key = "resourceUsedThresholdWithBE.cpuSuppressThresholdPercent "
	var a applied
	first := spec(65)
	for i, step := range []struct {
		f    report.InForce
		spec *strategy.Spec
		want string
	}{
		{report.InForce{UID: "u", Generation: 1}, first, "NodeSLO is in force [generation 1 changed " + key + "- -> 65]"},
		{report.InForce{UID: "u", Generation: 1}, first, ""},
		{report.InForce{UID: "u", Generation: 1, Problem: "the newest is malformed"}, first, ""},
		{report.InForce{UID: "u", Generation: 2, Pending: true, Problem: "disk full"}, spec(40), "NodeSLO is not in force [generation 2 reason disk full]"},
		{report.InForce{UID: "u", Generation: 2, Pending: true, Problem: "disk full"}, spec(40), ""},
		{report.InForce{UID: "u", Generation: 2}, spec(40), "NodeSLO is in force [generation 2 changed " + key + "65 -> 40]"},
		{report.InForce{UID: "u", Generation: 3}, spec(40), "NodeSLO is in force [generation 3 changed nothing that this node knows]"},
		{report.InForce{UID: "u", Generation: 4, Partly: true, Problem: "1 value"}, spec(45), "NodeSLO is in force but for some values [generation 4 reason 1 value]"},
		{report.InForce{UID: "u", Generation: 4, Partly: true, Problem: "2 values"}, spec(45), ""},
		{report.InForce{UID: "u", Generation: 4}, spec(45), "NodeSLO is in force [generation 4 changed " + key + "40 -> 45]"},
		{report.InForce{UID: "another", Generation: 1}, spec(50), "NodeSLO is in force [generation 1 changed " + key + "45 -> 50]"},
	} {
		got := ""
		if message, attributes, ok := a.news(&step.f, step.spec); ok {
			got = message + " " + fmt.Sprint(attributes)
		}
		if got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}
