// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package memqos_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/memqos"
)

// leveled is the container of the documents' scenario F2: memory.min 1 GiB, low 2, high 3, limit 4, reclaim from 2.4 GiB on.
func leveled(used unit.Bytes) memqos.Container {
	return memqos.Container{
		ID: "web", Pod: "pod-web", QoS: protocol.QoSLSR, Priority: 9500, Used: unit.Got(used), Request: 4 * gib, MinAdj: -25,
		Max: 4 * gib, High: 3 * gib, Low: 2 * gib, WmarkRatio: 80, WmarkScale: 50,
	}
}

// TestLevels is F2 as far as this loop decides it: what is below memory.low is nobody's, on a node of any pressure; above the
// mark it gives on a calm node, and no more than down to the stop; past memory.high the kernel throttles, and nothing is added.
func TestLevels(t *testing.T) {
	t.Parallel()
	const calm, tight = 50 * gib, 95 * gib
	for name, tc := range map[string]struct {
		used, node unit.Bytes
		stall      unit.Fraction
		asked      string
	}{
		// 1008 MiB are what is left to the neighbour of a tight node's 16.
		"F2-1 below min, tight":     {used: 819 * mib, node: tight, asked: "job=1008"},
		"F2-1 below min, calm":      {used: 819 * mib, node: calm},
		"F2-2 to low, tight":        {used: 1536 * mib, node: tight, asked: "job=1008"},
		"at low, tight":             {used: 2048 * mib, node: tight, asked: "job=1008"},
		"F2-3 above the mark":       {used: 2560 * mib, node: calm, asked: "web=117"}, // down to 2.4 GiB − 0.5 % of 3 GiB
		"below the mark":            {used: 2457 * mib, node: calm},
		"to high, tight":            {used: 2300 * mib, node: tight, asked: "job=1008 web=252"}, // the neighbour first, then down to low
		"F2-4 past high":            {used: 3100 * mib, node: calm, asked: "web=655"},           // as much as a tick takes
		"F2-4 past high, it stalls": {used: 3100 * mib, node: calm, stall: 0.05},                // the kernel throttles it already
	} {
		c := leveled(tc.used)
		c.Stall = unit.Got(tc.stall)
		in := node(c, be("job", gib))
		in.Used = unit.Got(tc.node)
		_, out := memqos.Step(memqos.State{}, in)
		if asked(out) != tc.asked {
			t.Errorf("%s: %q, want %q (%s)", name, asked(out), tc.asked, out.Reason)
		}
		for _, h := range out.Highs {
			if h.Container == "web" {
				t.Errorf("%s: memory.high of the protected container is moved: %+v", name, h)
			}
		}
	}
}

// TestColdCache is F2-6: BE and LSR both have cold cache on a node under pressure. BE gives first, at wmarkMinAdj 50, and LSR,
// at -25, only while the node is tight, and last.
func TestColdCache(t *testing.T) {
	t.Parallel()
	lsr := memqos.Container{
		ID: "db", Pod: "pod-db", QoS: protocol.QoSLSR, Priority: 9500, Used: unit.Got(4 * gib), Reclaimable: unit.Got(300 * mib), Request: 8 * gib, MinAdj: -25,
	}
	job := be("job", 4*gib)
	job.Reclaimable = unit.Got(300 * mib)
	for used, want := range map[unit.Bytes]string{87 * gib: "", 90 * gib: "job=300", 95 * gib: "job=300 db=300"} {
		in := node(lsr, job)
		in.Used = unit.Got(used)
		if _, out := memqos.Step(memqos.State{}, in); asked(out) != want {
			t.Errorf("%d GiB of 128: %q, want %q", used/gib, asked(out), want)
		}
	}
}
