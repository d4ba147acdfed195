// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package memqos_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/memqos"
)

const (
	mib = unit.Bytes(1 << 20)
	gib = unit.Bytes(1 << 30)
)

func num(n int64) *int64 { return &n }

// m5 is the documents' strategy: eviction at 75 %, utilisation mark 80 %.
func m5() strategy.ResourceThresholdStrategy {
	on := true
	return *strategyOf(strategy.ResourceThresholdStrategy{Enable: &on, MemoryEvictThresholdPercent: num(75), MemoryRequestUtilizationPercent: num(80)})
}

func strategyOf(t strategy.ResourceThresholdStrategy) *strategy.ResourceThresholdStrategy {
	full := strategy.Effective(strategy.Spec{ResourceUsedThresholdWithBE: &t})
	return full.ResourceUsedThresholdWithBE
}

// node is a calm node of 128 GiB.
func node(containers ...memqos.Container) memqos.Input {
	return memqos.Input{
		Now: 100 * unit.Second, Strategy: m5(), CanReclaim: true, CanHigh: true, Capacity: 128 * gib, Used: unit.Got(50 * gib), Containers: containers,
	}
}

// be is a batch container; it requests so much that the utilisation rule rests.
func be(id string, used unit.Bytes) memqos.Container {
	return memqos.Container{ID: id, Pod: "pod-" + id, QoS: protocol.QoSBE, Priority: 5500, Used: unit.Got(used), Request: 2 * used, MinAdj: 50}
}

func ls(id string, used unit.Bytes) memqos.Container {
	return memqos.Container{ID: id, Pod: "pod-" + id, QoS: protocol.QoSLS, Priority: 9500, Used: unit.Got(used), Request: used, MinAdj: -25}
}

// asked renders reclaims as "id=MiB".
func asked(out memqos.Output) string {
	var all []string
	for _, r := range out.Reclaims {
		all = append(all, r.Container+"="+strconv.FormatInt(int64(r.Bytes/mib), 10))
	}
	return strings.Join(all, " ")
}

func highs(out memqos.Output) string {
	var all []string
	for _, h := range out.Highs {
		all = append(all, h.Container+"="+strconv.FormatInt(int64(h.Bytes/mib), 10))
	}
	return strings.Join(all, " ")
}

// TestMarks are the documents' rows (seed-manifests part F).
func TestMarks(t *testing.T) {
	t.Parallel()
	g := func(f float64) unit.Bytes { return unit.Bytes(f * float64(gib)) }
	for name, tc := range map[string]struct {
		c           memqos.Container
		start, stop unit.Bytes
		ok          bool
	}{
		"LSR, M5":           {memqos.Container{Max: 8 * gib, High: g(9.6), WmarkRatio: 95, WmarkScale: 50}, g(7.6), g(7.56), true},
		"LS, M5":            {memqos.Container{Max: 4 * gib, High: 4 * gib, WmarkRatio: 90, WmarkScale: 30}, g(3.6), g(3.588), true},
		"BE, M5":            {memqos.Container{Max: 2 * gib, High: 2 * gib, WmarkRatio: 80, WmarkScale: 30}, g(1.6), g(1.594), true},
		"BE, M6":            {memqos.Container{Max: 2 * gib, High: 1717985280, WmarkRatio: 75, WmarkScale: 20}, 1288488960, 1285051983, true},
		"no high":           {memqos.Container{Max: 2 * gib, WmarkRatio: 50, WmarkScale: 100}, gib, g(0.98), true},
		"no max":            {memqos.Container{High: 2 * gib, WmarkRatio: 50, WmarkScale: 100}, gib, g(0.98), true},
		"no limit":          {memqos.Container{WmarkRatio: 50, WmarkScale: 100}, 0, 0, false},
		"no ratio":          {memqos.Container{Max: gib, WmarkScale: 100}, 0, 0, false},
		"more than its all": {memqos.Container{Max: gib, WmarkRatio: 1, WmarkScale: 1000}, 10737418, 0, true},
	} {
		start, stop, ok := memqos.Marks(&tc.c)
		near := func(a, b unit.Bytes) bool { return a-b < 4096 && b-a < 4096 }
		if ok != tc.ok || !near(start, tc.start) || !near(stop, tc.stop) {
			t.Errorf("%s: %d %d %v, want %d %d %v", name, start, stop, ok, tc.start, tc.stop, tc.ok)
		}
	}
}

// TestMarkOverTime: reclaim starts above the mark and goes on until it is down at the stop.
func TestMarkOverTime(t *testing.T) {
	t.Parallel()
	in := node(memqos.Container{ID: "a", QoS: protocol.QoSLS, Max: 4 * gib, WmarkRatio: 90, WmarkScale: 300})
	var s memqos.State
	for _, step := range []struct {
		used unit.Bytes
		want string
	}{
		{3600 * mib, ""}, {3686 * mib, ""}, {3700 * mib, "a=136"}, {3600 * mib, "a=36"}, {3563 * mib, ""}, {3600 * mib, ""}, {3690 * mib, "a=126"},
	} {
		in.Now += unit.Second
		in.Containers[0].Used = unit.Got(step.used)
		var out memqos.Output
		if s, out = memqos.Step(s, in); asked(out) != step.want || out.Reclaiming {
			t.Errorf("%d MiB: %q, want %q", step.used/mib, asked(out), step.want)
		}
	}
	// A figure is missing: the state stays, nothing is reclaimed.
	in.Containers[0].Used.OK = false
	next, out := memqos.Step(s, in)
	if asked(out) != "" || !next.Containers[0].Active {
		t.Errorf("%q, %+v", asked(out), next)
	}
}

// TestBooked is A8.
func TestBooked(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		used   [2]unit.Bytes
		booked bool
		change func(*memqos.Input)
		want   string
		after  bool
	}{
		"24 of 30":        {used: [2]unit.Bytes{16 * gib, 8 * gib}, want: "a=614", after: true},
		"20 of 30":        {used: [2]unit.Bytes{14 * gib, 6 * gib}},
		"23.9 on the way": {used: [2]unit.Bytes{16 * gib, 7*gib + 922*mib}, booked: true, want: "a=512", after: true},
		"23.4 on the way": {used: [2]unit.Bytes{16 * gib, 7*gib + 409*mib}, booked: true},
		"nothing asked":   {used: [2]unit.Bytes{16 * gib, 8 * gib}, change: func(in *memqos.Input) { in.Strategy.MemoryRequestUtilizationPercent = nil }},
		"not enabled":     {used: [2]unit.Bytes{16 * gib, 8 * gib}, booked: true, change: func(in *memqos.Input) { in.Strategy.Enable = nil }},
		"a hole":          {used: [2]unit.Bytes{16 * gib, 8 * gib}, booked: true, change: func(in *memqos.Input) { in.Containers[1].Used.OK = false }, after: true},
		"nobody requests": {used: [2]unit.Bytes{16 * gib, 8 * gib}, booked: true, change: func(in *memqos.Input) {
			in.Containers[0].Request, in.Containers[1].Request = 0, 0
		}},
	} {
		a, b := be("a", tc.used[0]), be("b", tc.used[1])
		a.Request, b.Request = 10*gib, 20*gib
		in := node(a, b, ls("ls", 26*gib))
		if tc.change != nil {
			tc.change(&in)
		}
		next, out := memqos.Step(memqos.State{Booked: tc.booked}, in)
		if asked(out) != tc.want || next.Booked != tc.after || out.Reclaiming {
			t.Errorf("%s: %q booked %v, want %q %v (%s)", name, asked(out), next.Booked, tc.want, tc.after, out.Reason)
		}
	}
}

func TestNodePressure(t *testing.T) {
	t.Parallel()
	// Eviction at 75 % of 128 GiB is 96; near above 89.6, tight above 93.44, calm at 87.04.
	for name, tc := range map[string]struct {
		used  unit.Bytes
		from  memqos.Pressure
		want  memqos.Pressure
		asked string
		highs string
	}{
		"calm":               {used: 89 * gib},
		"near":               {used: 90 * gib, want: memqos.Near, asked: "a=655"},
		"still near":         {used: 88 * gib, from: memqos.Near, want: memqos.Near, asked: "a=655"},
		"near by little":     {used: 87*gib + 141*mib, from: memqos.Near, want: memqos.Near, asked: "a=100"},
		"calm again":         {used: 87 * gib, from: memqos.Near},
		"tight":              {used: 94 * gib, want: memqos.Tight, asked: "a=1008 b=302", highs: "a=1024 b=512"},
		"still tight":        {used: 90 * gib, from: memqos.Tight, want: memqos.Tight, asked: "a=1008 b=302", highs: "a=1024 b=512"},
		"tight to near":      {used: 89 * gib, from: memqos.Tight, want: memqos.Near, asked: "a=655"},
		"tight to calm":      {used: 80 * gib, from: memqos.Tight},
		"above the eviction": {used: 100 * gib, want: memqos.Tight, asked: "a=1008 b=302", highs: "a=1024 b=512"},
	} {
		in := node(ls("ls", 80*gib), be("b", 512*mib), be("a", gib))
		in.Containers[1].Priority = 5600
		in.Used = unit.Got(tc.used)
		s, out := memqos.Step(memqos.State{Pressure: tc.from}, in)
		if s.Pressure != tc.want || out.Pressure != tc.want || asked(out) != tc.asked || highs(out) != tc.highs || out.Reclaiming != (tc.asked != "") {
			t.Errorf("%s: %s, %q, %q (%s)", name, out.Pressure, asked(out), highs(out), out.Reason)
		}
	}
	in := node(be("a", gib))
	in.Used.OK = false
	s, out := memqos.Step(memqos.State{Pressure: memqos.Tight}, in)
	if s.Pressure != memqos.Tight || asked(out) != "" || highs(out) != "a=1024" {
		t.Errorf("not measured: %s, %q, %q", s.Pressure, asked(out), highs(out))
	}
	in = node(be("a", gib))
	in.Used, in.Strategy.Enable = unit.Got(120*gib), new(bool)
	if s, out = memqos.Step(memqos.State{Pressure: memqos.Tight}, in); s.Pressure != memqos.Calm || asked(out) != "" || highs(out) != "" {
		t.Errorf("A9: %s, %q, %q", s.Pressure, asked(out), highs(out))
	}
	if memqos.Pressure(9).String() != "tight" {
		t.Error("names run out")
	}
}

// TestOrder: adj 50 first, then BE, then priority, then who is most above its request; LS last and only when tight.
func TestOrder(t *testing.T) {
	t.Parallel()
	small := func(c memqos.Container, change func(*memqos.Container)) memqos.Container {
		c.Reclaimable, c.Request = unit.Got(100*mib), 4*gib
		if change != nil {
			change(&c)
		}
		return c
	}
	containers := []memqos.Container{
		small(ls("ls", 4*gib), nil), small(be("plain", 4*gib), nil),
		small(be("greedy", 4*gib), func(c *memqos.Container) { c.Request = gib }),
		small(be("low", 4*gib), func(c *memqos.Container) { c.Priority = 5000 }),
		small(be("kept", 4*gib), func(c *memqos.Container) { c.MinAdj = 0 }),
		small(ls("mid", 4*gib), func(c *memqos.Container) { c.MinAdj = 50 }),
	}
	in := node(containers...)
	in.Strategy.MemoryRequestUtilizationPercent = nil
	in.Used = unit.Got(95 * gib)
	if _, out := memqos.Step(memqos.State{}, in); asked(out) != "low=100 greedy=100 plain=100 mid=100 kept=100 ls=100" {
		t.Errorf("tight: %q", asked(out))
	}
	in.Used = unit.Got(90 * gib)
	if _, out := memqos.Step(memqos.State{}, in); asked(out) != "low=100 greedy=100 plain=100 kept=100" {
		t.Errorf("near: %q", asked(out))
	}
}

func TestWhoIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*memqos.Input)
		state  memqos.ContainerState
		near   string
		tight  string
	}{
		"as it is":             {near: "a=655", tight: "a=1008"},
		"protected":            {change: func(in *memqos.Input) { in.Containers[0].Low = 924 * mib }, near: "a=100", tight: "a=100"},
		"nothing to give":      {change: func(in *memqos.Input) { in.Containers[0].Reclaimable = unit.Got(50 * mib) }, near: "a=50", tight: "a=50"},
		"not measured":         {change: func(in *memqos.Input) { in.Containers[0].Used.OK = false }},
		"stalls":               {change: func(in *memqos.Input) { in.Containers[0].Stall = unit.Got[unit.Fraction](0.3) }, tight: "a=1008"},
		"stalls a little":      {change: func(in *memqos.Input) { in.Containers[0].Stall = unit.Got[unit.Fraction](0.2) }, near: "a=655", tight: "a=1008"},
		"dry":                  {state: memqos.ContainerState{ID: "a", DryTo: 110 * unit.Second}},
		"dry no more":          {state: memqos.ContainerState{ID: "a", DryTo: 100 * unit.Second}, near: "a=655", tight: "a=1008"},
		"gave next to nothing": {change: func(in *memqos.Input) { in.Containers[0].Got = unit.Got(9 * mib) }, state: memqos.ContainerState{ID: "a", Asked: 100 * mib}},
		"gave a part":          {change: func(in *memqos.Input) { in.Containers[0].Got = unit.Got(11 * mib) }, state: memqos.ContainerState{ID: "a", Asked: 100 * mib}, near: "a=655", tight: "a=1008"},
		"a dry clock of old":   {state: memqos.ContainerState{ID: "a", DryTo: 9999 * unit.Second}, near: "a=655", tight: "a=1008"},
		"kernel has nothing":   {change: func(in *memqos.Input) { in.CanReclaim, in.CanHigh = false, false }},
	} {
		for used, want := range map[unit.Bytes]string{90 * gib: tc.near, 95 * gib: tc.tight} {
			in := node(be("a", gib))
			in.Used = unit.Got(used)
			if tc.change != nil {
				tc.change(&in)
			}
			s := memqos.State{}
			if tc.state.ID != "" {
				s.Containers = []memqos.ContainerState{tc.state}
			}
			if _, out := memqos.Step(s, in); asked(out) != want {
				t.Errorf("%s at %d GiB: %q, want %q", name, used/gib, asked(out), want)
			}
		}
	}
	// LS is left alone much earlier, even on a tight node.
	in := node(ls("ls", 80*gib))
	in.Used, in.Containers[0].Stall = unit.Got(95*gib), unit.Got[unit.Fraction](0.05)
	if _, out := memqos.Step(memqos.State{}, in); asked(out) != "" {
		t.Errorf("%q", asked(out))
	}
}

// TestHighStandsInForReclaim: without memory.reclaim BE is pushed by memory.high for a tick at a time; LS never.
func TestHighStandsInForReclaim(t *testing.T) {
	t.Parallel()
	in := node(be("a", gib), ls("ls", 80*gib))
	in.CanReclaim, in.Used = false, unit.Got(90*gib)
	_, out := memqos.Step(memqos.State{}, in)
	if len(out.Reclaims) != 0 || highs(out) != "a=368" || !out.Highs[0].Less || !strings.Contains(out.Highs[0].Reason, "no memory.reclaim") {
		t.Errorf("%+v", out)
	}
	in.Used = unit.Got(95 * gib)
	if _, out = memqos.Step(memqos.State{}, in); highs(out) != "a=16" {
		t.Errorf("tight: %q", highs(out))
	}
}

// TestHoldOnlyFalls: on a tight node BE gets no more than it has; the value follows it down, and is gone afterwards.
func TestHoldOnlyFalls(t *testing.T) {
	t.Parallel()
	in := node(be("a", gib))
	in.Containers[0].Max = 2 * gib
	var s memqos.State
	for _, step := range []struct {
		node, used unit.Bytes
		want       string
	}{
		{95 * gib, gib, "a=1024"}, {95 * gib, 1020 * mib, "a=1024"}, {95 * gib, 1000 * mib, "a=1000"}, {95 * gib, 900 * mib, "a=900"}, {95 * gib, 950 * mib, "a=900"},
		{95 * gib, 100 * mib, "a=100"}, {95 * gib, 0, "a=16"}, {80 * gib, 100 * mib, ""}, {95 * gib, 500 * mib, "a=500"},
	} {
		in.Now += unit.Second
		in.Used, in.Containers[0].Used = unit.Got(step.node), unit.Got(step.used)
		in.Containers[0].Request = 10 * gib
		var out memqos.Output
		if s, out = memqos.Step(s, in); highs(out) != step.want {
			t.Errorf("node %d, container %d MiB: %q, want %q", step.node/gib, step.used/mib, highs(out), step.want)
		}
	}
	in.Containers[0].High = 400 * mib
	if _, out := memqos.Step(s, in); highs(out) != "" {
		t.Errorf("a tighter value of its own: %q", highs(out))
	}
}

// TestTightIsNoDeadEnd: a node that rests close below the threshold evicts nobody (A5). It holds BE and takes from others for a
// minute, no longer; above the threshold as long as that lasts, and again when it was near in between.
func TestTightIsNoDeadEnd(t *testing.T) {
	t.Parallel()
	in := node(ls("ls", 80*gib), be("a", gib))
	in.Containers[1].Max = 4 * gib
	var s memqos.State
	for _, step := range []struct {
		after unit.Micros
		used  unit.Bytes
		highs string
		ls    bool
	}{
		{unit.Second, 94 * gib, "a=1024", true}, {59 * unit.Second, 94 * gib, "a=1024", true}, {unit.Second, 94 * gib, "", false},
		{60 * unit.Minute, 96 * gib, "", false}, {unit.Second, 97 * gib, "a=1024", true}, {60 * unit.Minute, 97 * gib, "a=1024", true},
		{unit.Second, 95 * gib, "", false}, {unit.Second, 89 * gib, "", false}, {unit.Second, 94 * gib, "a=1024", true},
	} {
		in.Now += step.after
		in.Used = unit.Got(step.used)
		var out memqos.Output
		s, out = memqos.Step(s, in)
		if highs(out) != step.highs || strings.Contains(asked(out), "ls=") != step.ls || !strings.Contains(asked(out), "a=") {
			t.Errorf("%d s, %d GiB: held %q, asked %q, want %q and LS %v (%s)", in.Now/unit.Second, step.used/gib, highs(out), asked(out), step.highs, step.ls, out.Reason)
		}
	}
	in.Now = unit.Second
	if _, out := memqos.Step(memqos.State{Pressure: memqos.Tight, TightAt: 60 * unit.Minute}, in); highs(out) != "a=1024" {
		t.Errorf("another clock: %q", highs(out))
	}
}
