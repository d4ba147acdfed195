// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package suppress

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

func TestFormula(t *testing.T) {
	t.Parallel()
	reserved := func(u Usage, r unit.MilliCPU) Usage { u.Reserved = r; return u }
	for name, tc := range map[string]struct {
		cpus      int
		usage     Usage
		change    func(*strategy.ResourceThresholdStrategy)
		allowance unit.MilliCPU
		count     int
		quota     unit.Micros
		reason    string
	}{
		"documented example": {
			cpus: 32, usage: reserved(use(8, 5, 1, 2), 1000), allowance: 9800, count: 10, quota: 980000,
			reason: "65% of 32 CPUs - 8 (LS pods) - 1 (host applications) - 2 (system) = 9.8: ",
		},
		"A1":                            {cpus: 128, usage: use(44, 84, 0, 0), allowance: 39200, count: 40, quota: 3920000},
		"A2":                            {cpus: 128, usage: use(70, 58, 0, 0), allowance: 13200, count: 14, quota: 1320000},
		"A3 floor of 2":                 {cpus: 128, usage: use(90, 38, 0, 0), allowance: -6800, count: 2, quota: 2000, reason: "floor of 2 CPUs"},
		"A3 floor by percent":           {cpus: 128, usage: use(90, 38, 0, 0), change: minPercent(10), allowance: -6800, count: 13, quota: 1280000, reason: "floor of 1"},
		"reserved above the system's":   {cpus: 32, usage: reserved(use(8, 5, 0, 1), 3000), allowance: 9800, count: 10, quota: 980000, reason: "3 (reserved for the system)"},
		"exactly whole":                 {cpus: 100, usage: use(15, 0, 0, 0), allowance: 50000, count: 50, quota: 5000000},
		"a hair above whole":            {cpus: 100, usage: use(14.999, 0, 0, 0), allowance: 50001, count: 51, quota: 5000100},
		"idle node":                     {cpus: 8, usage: use(0, 0, 0, 0), allowance: 5200, count: 6, quota: 520000},
		"pods seem to use more than it": {cpus: 8, usage: Usage{Node: unit.Got[unit.MilliCPU](1000), LSPods: unit.Got[unit.MilliCPU](2000), BEPods: unit.Got[unit.MilliCPU](1000)}, allowance: 3200, count: 4, quota: 320000},
		"unmeasured host applications are system": {
			cpus: 8, usage: Usage{Node: unit.Got[unit.MilliCPU](2000), LSPods: unit.Got[unit.MilliCPU](500), BEPods: unit.Got[unit.MilliCPU](500)},
			allowance: 3700, count: 4, quota: 370000,
		},
		"capacity told": {cpus: 8, usage: func() Usage { u := use(1, 0, 0, 0); u.Capacity = 4000; return u }(), allowance: 1600, count: 2, quota: 160000},
		"one CPU":       {cpus: 1, usage: use(0, 0, 0, 0), allowance: 650, count: 1, quota: 65000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := Input{Strategy: enabled(tc.change), Usage: tc.usage, CPUs: CPUs{Topology: machine(1, 1, tc.cpus, 1)}}
			s, out := Step(State{}, in)
			if out.Allowance != unit.Got(tc.allowance) || s.Count != tc.count || out.CPUs.Len() != tc.count || out.Quota != unit.Unlimited || out.Mode != CPUSet {
				t.Errorf("cpuset: %+v", out)
			}
			if !strings.Contains(out.Reason, tc.reason) {
				t.Errorf("reason %q, want %q", out.Reason, tc.reason)
			}
			byQuota(&in.Strategy)
			if _, out = Step(State{}, in); out.Quota != tc.quota || !out.CPUs.Empty() || out.Mode != Quota {
				t.Errorf("quota: %+v, want %d", out, tc.quota)
			}
		})
	}
}

func TestMissingFiguresChangeNothing(t *testing.T) {
	t.Parallel()
	full := use(8, 5, 1, 2)
	for name, usage := range map[string]Usage{
		"nothing":    {},
		"no node":    {LSPods: full.LSPods, BEPods: full.BEPods, LSHostApps: full.LSHostApps},
		"no LS pods": {Node: full.Node, BEPods: full.BEPods},
		"no BE pods": {Node: full.Node, LSPods: full.LSPods},
	} {
		in := Input{Strategy: enabled(nil), Usage: full, CPUs: CPUs{Topology: machine(2, 1, 8, 2)}}
		held, _ := Step(State{}, in)
		in.Usage = usage
		for mode, s := range map[string]State{"fresh": {}, "off": {Mode: Off, Quota: unit.Unlimited}, "held": held} {
			next, out := Step(s, in)
			if out.Changed || out.Mode != s.Mode || !out.CPUs.Equal(s.CPUs) || next.Count != s.Count || !strings.Contains(out.Reason, "was not measured") {
				t.Errorf("%s, %s: %+v", name, mode, out)
			}
		}
		byQuota(&in.Strategy)
		if _, out := Step(State{Mode: Quota, Quota: 12345}, in); out.Changed || out.Quota != 12345 {
			t.Errorf("%s, quota: %+v", name, out)
		}
	}
	in := Input{Strategy: enabled(nil), Usage: full}
	if _, out := Step(State{}, in); out.Mode != Unknown || out.Changed {
		t.Errorf("no topology: %+v", out)
	}
	in.CPUs.Topology, in.Strategy.CPUSuppressThresholdPercent = machine(1, 1, 4, 1), nil
	if _, out := Step(State{}, in); out.Mode != Unknown || !strings.Contains(out.Reason, "cpuSuppressThresholdPercent") {
		t.Errorf("no threshold: %+v", out)
	}
}

func TestSwitchAndDisable(t *testing.T) {
	t.Parallel()
	in := Input{Now: unit.Second, Strategy: enabled(nil), Usage: use(8, 5, 1, 2), CPUs: CPUs{Topology: machine(2, 1, 16, 1)}}
	s, out := Step(State{}, in)
	if out.CPUs.Len() != 10 || !out.Changed {
		t.Fatalf("cpuset: %+v", out)
	}
	in.Now += unit.Second
	byQuota(&in.Strategy)
	s, out = Step(s, in)
	if out.Mode != Quota || out.Quota != 980000 || !out.CPUs.Empty() || !out.Changed {
		t.Errorf("to quota: %+v", out)
	}
	in.Now += unit.Second
	in.Strategy = enabled(nil)
	s, out = Step(s, in)
	if out.Mode != CPUSet || out.CPUs.Len() != 10 || out.Quota != unit.Unlimited || !out.Changed {
		t.Errorf("back to cpuset: %+v", out)
	}
	// The policy changes while nothing is measured: the same amount in the other currency.
	in.Usage, in.Now = Usage{}, in.Now+unit.Second
	byQuota(&in.Strategy)
	s, out = Step(s, in)
	if out.Quota != 1000000 || !out.CPUs.Empty() {
		t.Errorf("to quota without figures: %+v", out)
	}
	in.Strategy = enabled(nil)
	s, out = Step(s, in)
	if out.CPUs.Len() != 10 || out.Quota != unit.Unlimited {
		t.Errorf("to cpuset without figures: %+v", out)
	}
	in.Strategy.Enable = new(bool)
	s, out = Step(s, in)
	if out.Mode != Off || !out.CPUs.Empty() || out.Quota != unit.Unlimited || !out.Changed || len(out.Pods) != 0 {
		t.Errorf("disabled: %+v", out)
	}
	if _, out = Step(s, in); out.Changed {
		t.Errorf("disabled again: %+v", out)
	}
	if _, out = Step(State{}, in); out.Mode != Off || !out.Changed {
		t.Errorf("a fresh agent must lift what an earlier one left: %+v", out)
	}
}

// TestStateSurvivesRestart: state of a running loop goes through JSON and decides the same.
func TestStateSurvivesRestart(t *testing.T) {
	t.Parallel()
	in := Input{
		Strategy: enabled(nil), Usage: use(30, 20, 0, 0), Pressure: some(0.3), CPUs: CPUs{Topology: machine(2, 2, 8, 2)},
		Antagonists: []Antagonist{{Pod: "a", Used: 4000}},
	}
	s, _ := ticks(t, State{}, in, 5, nil)
	back := kept(t, s)
	in.Now = 6 * unit.Second
	wantState, want := Step(s, in)
	gotState, got := Step(back, in)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("output after a restart (-without +with):\n%s", d)
	}
	if d := cmp.Diff(wantState, gotState); d != "" {
		t.Errorf("state after a restart (-without +with):\n%s", d)
	}
}

func TestStarved(t *testing.T) {
	t.Parallel()
	top := machine(1, 1, 4, 2)
	all := top.All()
	for name, tc := range map[string]struct {
		cpus CPUs
		want topo.CPUSet
		note string
	}{
		"LSE owns all":                {CPUs{LSE: all}, all, "CPUs of LSE pods"},
		"LSE and reserved":            {CPUs{LSE: topo.Range(0, 5), Reserved: topo.Range(6, 7)}, topo.Range(6, 7), "reserved for the system"},
		"exclusive SYSTEM before LSE": {CPUs{LSE: topo.Range(0, 3), SystemExclusive: topo.Range(4, 7)}, topo.Range(4, 7), "CPUs of SYSTEM pods"},
	} {
		tc.cpus.Topology = top
		_, out := Step(State{}, Input{Strategy: enabled(nil), Usage: use(1, 1, 0, 0), CPUs: tc.cpus})
		if !out.Starved || out.CPUs.Len() != MinCPUs || !out.CPUs.SubsetOf(tc.want) || !strings.Contains(out.Reason, tc.note) {
			t.Errorf("%s: %+v", name, out)
		}
	}
	_, out := Step(State{}, Input{Strategy: enabled(nil), Usage: use(0, 0, 0, 0), CPUs: CPUs{Topology: top, LSR: topo.Range(0, 5)}})
	if out.Starved || !out.SharesLSR || out.CPUs.Len() != 6 || !topo.Range(6, 7).SubsetOf(out.CPUs) {
		t.Errorf("LSR CPUs only beyond the free ones: %+v", out)
	}
}

// kept is a state as the next life of the process has it.
func kept(t *testing.T, s State) (out State) {
	t.Helper()
	data, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
