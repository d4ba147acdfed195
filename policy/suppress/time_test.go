// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package suppress

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/model/unit"
)

// TestGrowth is A4: LS goes from 90 to 44 CPUs, BE comes back from 2 to 40 by at most 13 a second.
func TestGrowth(t *testing.T) {
	t.Parallel()
	in := Input{Strategy: enabled(nil), Usage: use(90, 20, 0, 0), CPUs: CPUs{Topology: machine(2, 4, 8, 2)}}
	s, _ := ticks(t, State{}, in, 3, nil)
	if s.Count != 2 {
		t.Fatalf("not at the floor: %d", s.Count)
	}
	in.Now, in.Usage = 3*unit.Second, use(44, 2, 0, 0)
	var got []int
	prev := s
	s, _ = ticks(t, s, in, 9, func(_ int, s State, o Output) {
		got = append(got, s.Count)
		if !prev.CPUs.SubsetOf(s.CPUs) {
			t.Errorf("growing dropped CPUs: %s, then %s", prev.CPUs, s.CPUs)
		}
		if o.Changed != (prev.Count != s.Count) {
			t.Errorf("changed = %v at %d", o.Changed, s.Count)
		}
		prev = s
	})
	if d := cmp.Diff([]int{2, 2, 2, 15, 28, 40, 40, 40, 40}, got); d != "" {
		t.Errorf("growth (-want +got):\n%s", d)
	}
	// An urgent call never grows, and a late tick grows once.
	in.Now, in.Usage, in.Urgent = 20*unit.Second, use(20, 40, 0, 0), true
	if s, _ = Step(s, in); s.Count > 40 {
		t.Errorf("an urgent call grew to %d", s.Count)
	}
}

func TestGrowthIsLimitedPerSecondNotPerCall(t *testing.T) {
	t.Parallel()
	in := Input{Strategy: enabled(nil), Usage: use(90, 20, 0, 0), CPUs: CPUs{Topology: machine(2, 4, 8, 2)}}
	s, _ := Step(State{}, in)
	in.Usage = use(0, 2, 0, 0)
	grown := 0
	for range 100 {
		in.Now += 100 * unit.Millisecond
		before := s.Count
		s, _ = Step(s, in)
		if s.Count > before {
			grown++
		}
		if s.Count-before > 13 {
			t.Fatalf("grew from %d to %d", before, s.Count)
		}
	}
	// 10 s: 3 s of waiting, then at most one growth in 0.9 s.
	if grown != 7 || s.Count != 84 {
		t.Errorf("%d growths to %d CPUs in 10 s", grown, s.Count)
	}
}

// TestPodsThatNobodyKnowsYet: what the class's cgroup uses beyond its known pods is best effort's and not the system's, unless it is so little that
// figures of different instants differ by it; a pressure is met from all that best effort uses.
func TestPodsThatNobodyKnowsYet(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		untold      unit.Measured[unit.MilliCPU]
		allow, some int
		pressure    Pressure
	}{
		"not measured":        {allow: 4800, some: 5},
		"all of it":           {untold: unit.Got[unit.MilliCPU](6000), allow: 10800, some: 11},
		"a part":              {untold: unit.Got[unit.MilliCPU](4000), allow: 8800, some: 9},
		"more than there is":  {untold: unit.Got[unit.MilliCPU](9000), allow: 11800, some: 12}, // 1 is reserved
		"instants":            {untold: unit.Got[unit.MilliCPU](310), allow: 4800, some: 5},
		"less than its pods'": {untold: unit.Got[unit.MilliCPU](-2000), allow: 4800, some: 5},
		"under pressure":      {untold: unit.Got[unit.MilliCPU](6000), allow: 10800, some: 6, pressure: some(0.2)}, // half of 12
	} {
		in := Input{Now: unit.Second, Strategy: enabled(nil), Usage: use(8, 6, 0, 8), CPUs: CPUs{Topology: machine(2, 1, 8, 2)}, Pressure: tc.pressure}
		in.Usage.Reserved, in.Usage.BEUntold = 1000, tc.untold // of the 8 beyond the pods 2 are the system's
		s, out := Step(State{}, in)
		if int(out.Allowance.V) != tc.allow || s.Count != tc.some {
			t.Errorf("%s: %d and %d CPUs, want %d and %d: %s", name, out.Allowance.V, s.Count, tc.allow, tc.some, out.Reason)
		}
	}
}

// TestWobbleDoesNotChurn: usage that swings around a value settles on its low side.
func TestWobbleDoesNotChurn(t *testing.T) {
	t.Parallel()
	for name, ls := range map[string]func(i int, r *rand.Rand) float64{
		"one CPU every second":    func(i int, _ *rand.Rand) float64 { return 20 + float64(i%2) },
		"ten CPUs every second":   func(i int, _ *rand.Rand) float64 { return 20 + 10*float64(i%2) },
		"noise of two CPUs":       func(_ int, r *rand.Rand) float64 { return 20 + 2*r.Float64() },
		"a slow wave of one CPU":  func(i int, _ *rand.Rand) float64 { return 20 + math.Sin(float64(i)/3) },
		"spikes every 10 seconds": func(i int, _ *rand.Rand) float64 { return 20 + 3*float64(i%10/9) },
	} {
		r := rand.New(rand.NewPCG(1, 2))
		in := Input{Strategy: enabled(nil), CPUs: CPUs{Topology: machine(2, 1, 16, 2)}}
		s, changes := State{}, 0
		for i := range 600 {
			in.Now += unit.Second
			in.Usage = use(ls(i, r), 10, 0, 0)
			var out Output
			s, out = Step(s, in)
			if i >= 20 && out.Changed {
				changes++
			}
		}
		if limit := 600 / 60; changes > limit {
			t.Errorf("%s: %d changes in 10 minutes", name, changes)
		}
	}
}

// TestClosedLoop: BE takes what it may; load comes, BE yields in the same tick; load goes, BE is back within seconds. The
// node stays at 65 % whenever LS alone is below.
func TestClosedLoop(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]bool{"cpuset": false, "cfsQuota": true} {
		in := Input{Strategy: enabled(nil), CPUs: CPUs{Topology: machine(2, 1, 16, 2)}}
		if change {
			byQuota(&in.Strategy)
		}
		var s State
		be, back := 0.0, -1
		for i := range 120 {
			ls := 10.0
			if i >= 30 && i < 60 {
				ls = 38
			}
			in.Now += unit.Second
			in.Usage = use(ls, be, 0, 1)
			s, _ = Step(s, in)
			if s.Mode == CPUSet {
				be = float64(s.CPUs.Len())
			} else {
				be = float64(s.Quota) / 100000
			}
			if total := ls + be + 1; total > 64*0.65+1 {
				t.Errorf("%s: %.2f CPUs used in second %d", name, total, i)
			}
			if i == 30 && be > 3 {
				t.Errorf("%s: BE still has %.2f CPUs in the tick in which load came", name, be)
			}
			if i >= 60 && back < 0 && be >= 30 {
				back = i - 60
			}
		}
		if back < 0 || back > 8 {
			t.Errorf("%s: BE was back %d s after load went", name, back)
		}
	}
}

func TestQuotaBandAndSteps(t *testing.T) {
	t.Parallel()
	in := Input{Now: unit.Second, Strategy: enabled(byQuota), CPUs: CPUs{Topology: machine(1, 1, 10, 1)}}
	var s State
	for _, step := range []struct {
		what string
		ls   float64
		want unit.Micros
		note string
	}{
		{what: "first from unlimited", ls: 5, want: 150000},
		{what: "less than 1 % of the node", ls: 4.91, want: 150000},
		{what: "1 % of the node", ls: 4.9, want: 160000},
		{what: "down at once", ls: 6.4, want: 10000},
		{what: "up by 10 % of the node", ls: 2, want: 110000, note: "grows to 450000 µs by 100000 µs at a time"},
		{what: "and again", ls: 2, want: 210000},
		{what: "never below the minimum", ls: 9, want: 2000},
	} {
		in.Usage, in.Now = use(step.ls, 1, 0, 0), in.Now+unit.Second
		var out Output
		if s, out = Step(s, in); out.Quota != step.want || !strings.Contains(out.Reason, step.note) {
			t.Errorf("%s: %d, want %d (%s)", step.what, out.Quota, step.want, out.Reason)
		}
	}
	in.Usage, in.Now = use(2, 1, 0, 0), in.Now+unit.Second
	s, _ = Step(s, in)
	in.Now += 100 * unit.Millisecond
	if _, out := Step(s, in); out.Quota != 102000 {
		t.Errorf("two growths in one tick: %d", out.Quota)
	}
}

// What is missing of the floor may be less than a quota moves for; what is above it by so little stays.
func TestQuotaReachesItsFloor(t *testing.T) {
	t.Parallel()
	half := enabled(byQuota)
	minPercent(50)(&half)
	in := Input{Now: unit.Second, Strategy: half, Usage: use(9, 1, 0, 0), CPUs: CPUs{Topology: machine(1, 1, 10, 1)}}
	for have, want := range map[unit.Micros]unit.Micros{395500: 500000, 495500: 500000, 500000: 500000, 504500: 504500, 515000: 500000} {
		if s, out := ticks(t, State{Mode: Quota, Quota: have}, in, 2, nil); s.Quota != want {
			t.Errorf("from %d to %d, want %d: %s", have, s.Quota, want, out.Reason)
		}
	}
}

func TestAnotherClockIsHarmless(t *testing.T) {
	t.Parallel()
	in := Input{Now: 1000 * unit.Second, Strategy: enabled(nil), Usage: use(30, 10, 0, 0), Pressure: some(0.3), CPUs: CPUs{Topology: machine(1, 1, 64, 1)}}
	s, _ := Step(State{}, in)
	in.Now, in.Usage, in.Pressure = 5*unit.Second, use(5, 2, 0, 0), some(0)
	s, _ = ticks(t, s, in, 30, nil)
	if s.Count != 37 {
		t.Errorf("after the clock fell back the set stays at %d CPUs", s.Count)
	}
}
