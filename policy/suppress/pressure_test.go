// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package suppress

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// settled is a node of 32 CPUs whose BE tier uses all of its 16.
func settled(t *testing.T, change func(*strategy.ResourceThresholdStrategy)) (State, Input) {
	t.Helper()
	in := Input{Strategy: enabled(change), Usage: use(4.8, 16, 0, 0), CPUs: CPUs{Topology: machine(2, 1, 8, 2)}}
	s, out := ticks(t, State{}, in, 3, nil)
	if granted := s.Count*1000 + int(s.Quota/100); granted != 16000 {
		t.Fatalf("not settled: %s", out.Reason)
	}
	in.Now = 10 * unit.Second
	return s, in
}

func TestPressureCuts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pressure Pressure
		urgent   bool
		used     float64
		count    int
		quota    unit.Micros
		note     string
	}{
		"calm":                         {pressure: some(0.04), used: 16, count: 16, quota: 1600000},
		"between":                      {pressure: some(0.09), used: 16, count: 16, quota: 1600000},
		"high":                         {pressure: some(0.10), used: 16, count: 12, quota: 1200000, note: "LS waits for a CPU 10% of the time: cut from 16 to 12 CPUs"},
		"twice as high":                {pressure: some(0.20), used: 16, count: 8, quota: 800000},
		"ten times as high":            {pressure: some(1.00), used: 16, count: 8, quota: 800000},
		"another threshold":            {pressure: Pressure{Some: unit.Got[unit.Fraction](0.2), High: 0.4}, used: 16, count: 16, quota: 1600000},
		"trigger without a reading":    {urgent: true, used: 16, count: 12, quota: 1200000},
		"trigger before the reading":   {urgent: true, pressure: some(0.02), used: 16, count: 12, quota: 1200000},
		"from what BE uses":            {pressure: some(0.10), used: 8, count: 6, quota: 600000},
		"BE hardly runs":               {pressure: some(0.50), used: 0.5, count: 16, quota: 1600000, note: "but BE uses only 0.5 CPUs"},
		"BE uses less than its floor":  {pressure: some(0.50), used: 1.9, count: 2, quota: 95000},
		"nothing measured, no trigger": {used: 16, count: 16, quota: 1600000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, policy := range []func(*strategy.ResourceThresholdStrategy){nil, byQuota} {
				s, in := settled(t, policy)
				in.Pressure, in.Urgent, in.Usage = tc.pressure, tc.urgent, use(4.8, tc.used, 0, 0)
				next, out := Step(s, in)
				if policy == nil && next.Count != tc.count || policy != nil && next.Quota != tc.quota || !strings.Contains(out.Reason, tc.note) {
					t.Errorf("%s: %d CPUs, quota %d: %s", next.Mode, next.Count, next.Quota, out.Reason)
				}
			}
		})
	}
}

// TestAReadingCutsOnce: a pod's pressure from before the last cut cuts no second time, but where the kernel calls for that very pod.
func TestAReadingCutsOnce(t *testing.T) {
	t.Parallel()
	s, in := settled(t, nil)
	in.Pressure = Pressure{Pods: []Stall{{Pod: "web", Some: 0.3, At: in.Now - unit.Second/10}}}
	s, _ = Step(s, in)
	after := func(wait unit.Micros, change func(*Input)) int {
		t.Helper()
		in := in
		in.Now, in.Usage = in.Now+wait, use(4.8, float64(s.Count), 0, 0)
		in.Pressure.Pods = slices.Clone(in.Pressure.Pods)
		if change != nil {
			change(&in)
		}
		next, _ := Step(s, in)
		return next.Count
	}
	if s.Count != 8 {
		t.Fatalf("first: %d", s.Count)
	}
	if n := after(unit.Second, nil); n != 8 {
		t.Errorf("the same reading again: %d", n)
	}
	if n := after(unit.Second, func(in *Input) { in.Pressure.Pods[0].At = in.Now - unit.Second/10 }); n != 4 {
		t.Errorf("a new one: %d", n)
	}
	if n := after(unit.Second/2, func(in *Input) { in.Urgent, in.Pressure.Waiting = true, []string{"web"} }); n != 4 {
		t.Errorf("it calls: %d", n)
	}
	if n := after(unit.Second/2, func(in *Input) { in.Urgent, in.Pressure.Waiting = true, []string{"api"} }); n != 6 {
		t.Errorf("another calls, of whom nothing is read: %d", n)
	}
}

// TestPressureWithoutUsage: the trigger fires before anything else is measured.
func TestPressureWithoutUsage(t *testing.T) {
	t.Parallel()
	s, in := settled(t, nil)
	in.Urgent, in.Usage = true, Usage{}
	if s, out := Step(s, in); s.Count != 12 || !out.Cut || !out.Changed {
		t.Errorf("%+v", out)
	}
	if _, out := Step(State{}, in); out.Mode != Unknown || out.Changed {
		t.Errorf("nothing is in force yet: %+v", out)
	}
}

// TestPressureOverTime: cut every half second while it lasts, hold while it is between, grow again when it was calm.
func TestPressureOverTime(t *testing.T) {
	t.Parallel()
	s, in := settled(t, nil)
	var got []int
	at := func(after unit.Micros, p unit.Fraction) Output {
		in.Now += after
		in.Pressure = some(p)
		in.Usage = use(4.8, float64(s.Count), 0, 0)
		var out Output
		s, out = Step(s, in)
		got = append(got, s.Count)
		return out
	}
	at(unit.Second, 0.2)
	at(200*unit.Millisecond, 0.2) // the first cut has not shown yet
	at(300*unit.Millisecond, 0.2)
	at(unit.Second, 0.07)
	at(20*unit.Second, 0.07)
	if out := at(unit.Second, 0.01); !strings.Contains(out.Reason, "held by LS pressure") {
		t.Errorf("reason %q", out.Reason)
	}
	at(9*unit.Second, 0.01)
	if out := at(unit.Second, 0.01); !strings.Contains(out.Reason, "lifted") {
		t.Errorf("reason %q", out.Reason)
	}
	for range 7 {
		at(unit.Second, 0.01)
	}
	want := []int{8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 8, 12, 16, 16, 16}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("CPUs (-want +got):\n%s", d)
	}
}

// TestPressureThatBEDoesNotCause: LS is throttled by its own quota; BE does not pay for it for ever.
func TestPressureThatBEDoesNotCause(t *testing.T) {
	t.Parallel()
	s, in := settled(t, nil)
	in.Pressure = some(0.4)
	floor, back := 0, 0
	for range 600 {
		in.Now += unit.Second
		in.Usage = use(4.8, float64(s.Count), 0, 0)
		s, _ = Step(s, in)
		if s.Count == MinCPUs {
			floor++
		}
		if s.Count == 16 {
			back++
		}
	}
	if floor < 30 || floor > 100 || back < 450 {
		t.Errorf("of 600 s %d at the floor, %d unhindered", floor, back)
	}
	// Without readings the cap does not stay for ever either.
	s, in = settled(t, nil)
	in.Urgent = true
	s, _ = Step(s, in)
	in.Urgent, in.Pressure = false, Pressure{}
	s, out := ticks(t, s, in, 60, nil)
	if s.Count != 16 || s.Press.Capped {
		t.Errorf("still capped: %s", out.Reason)
	}
}

// TestPressureOfOnePodDoesNotHideAnother: a pod that stalls by itself is soon not listened to; one that waits later is heard, by its
// figure and by its trigger, and so is the first one after five minutes.
func TestPressureOfOnePodDoesNotHideAnother(t *testing.T) {
	t.Parallel()
	own := Stall{Pod: "own", Some: 0.4}
	ignoring := func() (State, Input) {
		s, in := settled(t, nil)
		for range 120 {
			in.Now += unit.Second
			in.Pressure.Pods = []Stall{own, {Pod: "other", Some: 0.01}}
			in.Usage = use(4.8, float64(s.Count), 0, 0)
			s, _ = Step(s, in)
		}
		if s.Count != 16 || len(s.Press.Ignored) != 1 || s.Press.Ignored[0].Pod != "own" {
			t.Fatalf("%d CPUs, %+v", s.Count, s.Press)
		}
		in.Now += unit.Second
		return s, in
	}
	for name, tc := range map[string]struct {
		change func(*Input)
		cut    bool
	}{
		"nobody else":               {func(*Input) {}, false},
		"another waits":             {func(in *Input) { in.Pressure.Pods[1].Some = 0.2 }, true},
		"another's trigger":         {func(in *Input) { in.Urgent, in.Pressure.Waiting = true, []string{"own", "other"} }, true},
		"its own trigger":           {func(in *Input) { in.Urgent, in.Pressure.Waiting = true, []string{"own"} }, false},
		"a trigger that names none": {func(in *Input) { in.Urgent = true }, true},
		"it again, much later":      {func(in *Input) { in.Now += ignored }, true},
		"a tier without pods":       {func(in *Input) { in.Pressure = some(0.2) }, true},
	} {
		s, in := ignoring()
		tc.change(&in)
		if _, out := Step(s, in); out.Cut != tc.cut {
			t.Errorf("%s: cut %v, want %v: %s", name, out.Cut, tc.cut, out.Reason)
		}
	}
	// Who has not waited all the time is not blamed for it: the half minute begins anew when they take turns.
	s, in := settled(t, nil)
	for i := range 200 {
		in.Now += unit.Second
		in.Pressure.Pods = []Stall{{Pod: []string{"a", "b"}[i/20%2], Some: 0.4}}
		in.Usage = use(4.8, float64(s.Count), 0, 0)
		s, _ = Step(s, in)
	}
	if s.Count != MinCPUs || len(s.Press.Ignored) != 0 || s.Press.IgnoreTo != 0 {
		t.Errorf("%d CPUs, %+v", s.Count, s.Press)
	}
}

func TestAntagonistsPayFirst(t *testing.T) {
	t.Parallel()
	s, in := settled(t, nil)
	in.Antagonists = []Antagonist{{Pod: "worse", Used: 3100}, {Pod: "bad", Used: 5000, Cap: 4000}}
	in.Pressure = some(0.1) // four CPUs are wanted
	next, out := Step(s, in)
	want := []PodCap{
		{Pod: "bad", Limit: 4000, Asked: 4000, Reason: "cap of interference detection"},
		{Pod: "worse", Limit: 100, Reason: "gives up 3 of 3.1 CPUs, because it disturbs others"},
	}
	if d := cmp.Diff(want, out.Pods); d != "" {
		t.Errorf("caps (-want +got):\n%s", d)
	}
	if next.Count != 16 || !out.Cut || !out.Changed {
		t.Errorf("the tier pays too: %s", out.Reason)
	}
	// More than they have: the tier gives up the rest.
	in.Pressure = some(0.2)
	in.Antagonists = in.Antagonists[:1]
	if next, out = Step(s, in); next.Count != 11 || out.Pods[0].Limit != 100 {
		t.Errorf("%s", out.Reason)
	}
	// Caps stay while the pod is named, whatever it uses, and end with it.
	in.Now, in.Pressure, in.Antagonists[0].Used = in.Now+unit.Second, some(0), 100
	next, out = Step(next, in)
	if d := cmp.Diff([]PodCap{{Pod: "worse", Limit: 100, Reason: want[1].Reason}}, out.Pods); d != "" || out.Changed {
		t.Errorf("changed %v, caps (-want +got):\n%s", out.Changed, d)
	}
	in.Now, in.Antagonists = in.Now+unit.Second, nil
	if _, out = Step(next, in); len(out.Pods) != 0 || !out.Changed {
		t.Errorf("%+v", out)
	}
	// Interference detection releases step by step, and its pod's cap follows.
	s, in = settled(t, nil)
	for _, step := range [][2]unit.MilliCPU{{1000, 1000}, {1000, 1000}, {950, 1000}, {500, 500}, {1000, 1000}, {2000, 2000}, {1900, 2000}} {
		in.Now, in.Antagonists = in.Now+unit.Second, []Antagonist{{Pod: "bad", Used: 3000, Cap: step[0]}}
		if s, out = Step(s, in); len(out.Pods) != 1 || out.Pods[0].Limit != step[1] {
			t.Errorf("asked %d: %+v, want %d", step[0], out.Pods, step[1])
		}
	}
	// A shrinking allowance comes out of their share first, without any pressure.
	s, in = settled(t, nil)
	in.Usage, in.Antagonists = use(10.8, 16, 0, 0), []Antagonist{{Pod: "bad", Used: 8000}}
	if next, out = Step(s, in); next.Count != 10 || out.Pods[0].Limit != 2000 {
		t.Errorf("%d CPUs, %+v", next.Count, out.Pods)
	}
}

// TestInvariants drives the loop with random input: it never takes CPUs of others, never grows too fast, never goes
// below its floor, and says that something changed exactly when it did.
func TestInvariants(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(11, 12))
	for range 60 {
		top := machine(1+r.IntN(3), 1+r.IntN(2), 1+r.IntN(8), 1+r.IntN(2))
		in := Input{Strategy: enabled(minPercent(int64(r.IntN(30)))), CPUs: CPUs{Topology: top}}
		if r.IntN(3) == 0 {
			byQuota(&in.Strategy)
		}
		n := float64(top.All().Len())
		s := State{}
		for range 200 {
			in.Now += unit.Micros(r.Int64N(int64(2 * unit.Second)))
			in.Urgent = r.IntN(10) == 0
			in.Usage = use(n*r.Float64(), n*r.Float64(), r.Float64(), r.Float64())
			if r.IntN(10) == 0 {
				in.Usage.Node.OK = false
			}
			in.Pressure = some(unit.Fraction(r.Float64() / 4))
			in.Pressure.Some.OK = r.IntN(5) > 0
			if r.IntN(20) == 0 {
				in.CPUs.LSE, in.CPUs.LSR, in.CPUs.Reserved = pickSome(r, top.All()), pickSome(r, top.All()), topo.CPUs(0)
			}
			in.Antagonists = nil
			if r.IntN(4) == 0 {
				in.Antagonists = []Antagonist{{Pod: "a", Used: unit.MilliCPU(r.IntN(8000)), Cap: unit.MilliCPU(r.IntN(2) * 500)}}
			}
			before := s
			var out Output
			s, out = Step(s, in)
			check(t, &before, &s, &in, &out)
			again, second := Step(s, in)
			if second.Changed && !second.Cut {
				t.Fatalf("the same input again changes %+v to %+v: %s", s, again, second.Reason)
			}
		}
	}
}

func check(t *testing.T, before, s *State, in *Input, out *Output) {
	t.Helper()
	if out.Mode == Unknown {
		return
	}
	changed := before.Mode != s.Mode || !before.CPUs.Equal(s.CPUs) || before.Quota != s.Quota || !samePods(before.Pods, s.Pods)
	if out.Changed != changed || out.Reason == "" {
		t.Fatalf("changed = %v: from %+v to %+v", out.Changed, before, s)
	}
	if s.Mode == Quota {
		if s.Quota < MinQuota || !out.CPUs.Empty() {
			t.Fatalf("quota %d with CPUs %s", s.Quota, out.CPUs)
		}
		return
	}
	all := in.CPUs.Topology.All().Len()
	least := max(MinCPUs, (all*int(*in.Strategy.CPUSuppressMinPercent)+99)/100)
	forbidden := in.CPUs.LSE.Union(in.CPUs.Reserved)
	if out.CPUs.Empty() || out.CPUs.Len() != s.Count || !out.Starved && out.CPUs.Overlaps(forbidden) || !out.CPUs.SubsetOf(in.CPUs.Topology.All()) {
		t.Fatalf("%s of %s without %s: %s", out.CPUs, in.CPUs.Topology.All(), forbidden, out.Reason)
	}
	free := in.CPUs.Topology.All().Minus(forbidden).Len()
	if !out.Starved && s.Count < min(least, free) {
		t.Fatalf("%d CPUs are fewer than the least", s.Count)
	}
	if before.Mode == CPUSet && s.Count > max(before.Count+(all+9)/10, least) {
		t.Fatalf("grew from %d to %d", before.Count, s.Count)
	}
	if in.Urgent && before.Mode == CPUSet && s.Count > max(before.Count, least) {
		t.Fatalf("an urgent call grew from %d to %d", before.Count, s.Count)
	}
}

// TestMoreLoadNeverMeansMoreCPUs: from a fresh start the set shrinks as LS uses more.
func TestMoreLoadNeverMeansMoreCPUs(t *testing.T) {
	t.Parallel()
	in := Input{Strategy: enabled(nil), CPUs: CPUs{Topology: machine(2, 1, 8, 2)}}
	last := 1 << 30
	for ls := 0.0; ls <= 32; ls += 0.25 {
		in.Usage = use(ls, 5, 0, 0)
		s, _ := Step(State{}, in)
		if s.Count > last {
			t.Fatalf("LS at %.2f CPUs: %d CPUs for BE, %d before", ls, s.Count, last)
		}
		last = s.Count
	}
}
