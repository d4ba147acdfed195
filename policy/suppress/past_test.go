// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package suppress

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
)

// TestPressureThatComesBack: LS waits whenever BE uses more than half of the node's 16 that it may. The first return is to the full; then BE is held half
// way, for half a minute and twice as long each time again; a minute without pressure after that, and the next is a first one. A restart of the
// agent forgets nothing.
func TestPressureThatComesBack(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]func(*strategy.ResourceThresholdStrategy){"cpuset": nil, "cfsQuota": byQuota} {
		s, in := settled(t, policy)
		be := func() float64 {
			if s.Mode == Quota {
				return float64(s.Quota) / 100000
			}
			return float64(s.Count)
		}
		var waits []int // seconds between two pressures
		last, was := 0, false
		run := func(from, to int, bad float64) {
			for i := from; i < to; i++ {
				in.Now += unit.Second
				in.Usage, in.Pressure = use(4.8, be(), 0, 0), some(0)
				if be() > bad {
					in.Pressure = some(0.3)
				}
				is := be() > bad
				if is && !was {
					waits, last = append(waits, i-last), i
				}
				was = is
				s, _ = Step(s, in)
				s = kept(t, s)
			}
		}
		run(0, 1500, 10)
		if len(waits) < 6 || len(waits) > 9 {
			t.Errorf("%s: LS waited %d times in 25 minutes, after %v s", name, len(waits), waits)
		}
		for i := 2; i+1 < len(waits) && i < 6; i++ {
			if grew := waits[i+1] - waits[i]; grew < 20 {
				t.Errorf("%s: the waits do not get longer: %v", name, waits)
			}
		}
		run(1500, 2100, 99)
		if be() < 15.68 { // a quota does not move for less than a hundredth of the node
			t.Errorf("%s: BE may use %v of 16 CPUs long after the pressure", name, be())
		}
		waits, last = nil, 2100
		run(2100, 2150, 10)
		if d := cmp.Diff([]int{0}, waits[:1]); d != "" || len(waits) < 2 || waits[1] > 20 {
			t.Errorf("%s: the next pressure is not a first one: %v", name, waits)
		}
	}
}

// Who waits although BE is at its floor says nothing about how much BE may use, and what another clock has told is forgotten.
func TestPressureOfOthersIsNoPast(t *testing.T) {
	t.Parallel()
	s, in := settled(t, nil)
	in.Pressure = some(0.5)
	s, _ = ticks(t, s, in, 60, nil)
	if s.Press.Past != (Past{}) || s.Press.Capped {
		t.Errorf("after pressure that BE does not cause: %+v", s.Press)
	}
	s, in = settled(t, nil)
	s.Press.Past = Past{Bad: 16000, Good: 2000, LiftedAt: 999 * unit.Second, Again: 3, HoldTo: 1999 * unit.Second}
	if s, _ = ticks(t, s, in, 2, nil); s.Press.Past != (Past{}) || s.Count != 16 {
		t.Errorf("of another clock: %+v, %d CPUs", s.Press, s.Count)
	}
}

// TestWhatRefutesThePast: pressure that comes when BE has just grown tells how much is too much, however often; pressure that comes while BE stands half way
// tells three times in a row that it is not how much BE has, and then nothing for five minutes.
func TestWhatRefutesThePast(t *testing.T) {
	t.Parallel()
	const s = unit.Second
	past := func() Past { return Past{Good: 2000, Bad: 8000, LiftedAt: 100 * s, Again: 2, HoldTo: 400 * s} }
	p := past()
	for i := range unit.Micros(6) {
		at := 100*s + i*10*s
		p.begins(at+4*s, at, 5000) // four seconds after BE has grown
		p.ends(at+6*s, 1000)
	}
	if p.Again != 8 || p.Refuted != 0 || p.Bad != 5000 || p.HoldTo != 156*s+480*s {
		t.Errorf("after growth: %+v", p)
	}
	p = past()
	for i, want := range []int{1, 2} {
		at := 110*s + unit.Micros(i)*20*s
		if p.begins(at, 100*s, 5000); p.Refuted != want || p.Bad != 5000 {
			t.Errorf("while it stands, %d: %+v", i, p)
		}
		p.ends(at+11*s, 1000)
	}
	p.begins(150*s, 100*s, 5000)
	if want := (Past{DeafTo: 450 * s}); p != want {
		t.Errorf("refuted: %+v", p)
	}
	p.begins(200*s, 100*s, 5000)
	if p.ends(215*s, 1000); p != (Past{DeafTo: 450 * s}) {
		t.Errorf("within five minutes: %+v", p)
	}
	if p.begins(450*s, 100*s, 5000); p.Bad != 5000 || p.Again != 0 {
		t.Errorf("after them: %+v", p)
	}
	p = past()
	if p.begins(430*s, 100*s, 5000); p.Again != 3 || p.Refuted != 0 {
		t.Errorf("soon after a hold: %+v", p)
	}
	p = past()
	if p.begins(460*s, 100*s, 5000); p.Again != 0 {
		t.Errorf("a minute after a hold: %+v", p)
	}
}

// TestAHoldKeepsTheFloor: what a strategy guarantees is BE's while it is held, too.
func TestAHoldKeepsTheFloor(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]func(*strategy.ResourceThresholdStrategy){"cpuset": nil, "cfsQuota": byQuota} {
		s, in := settled(t, func(r *strategy.ResourceThresholdStrategy) {
			if policy != nil {
				policy(r)
			}
			minPercent(25)(r)
		})
		in.Pressure = some(0)
		s.Press.Past = Past{Good: 1000, Bad: 3000, LiftedAt: 5 * unit.Second, Again: 1, HoldTo: 60 * unit.Second}
		if s, _ = ticks(t, s, in, 2, nil); s.Count*1000+int(s.Quota/100) != 8000 {
			t.Errorf("%s: held to %d CPUs, %d µs; a quarter of 32 CPUs is guaranteed", name, s.Count, s.Quota)
		}
	}
}

// TestTwoWaitsAtTheFloorProveNothing: the third does, half a minute after the first, where there were no ten calm seconds in between.
func TestTwoWaitsAtTheFloorProveNothing(t *testing.T) {
	t.Parallel()
	s, in := settled(t, nil)
	wait := func(seconds int, f unit.Fraction) {
		in.Pressure = Pressure{Pods: []Stall{{Pod: "web", Some: f}}}
		for range seconds {
			in.Now += unit.Second
			in.Usage = use(4.8, float64(s.Count), 0, 0)
			s, _ = Step(s, in)
		}
	}
	for s.Count > MinCPUs {
		wait(1, 0.5)
	}
	wait(1, 0.5) // the first
	wait(31, 0.07)
	if wait(1, 0.5); !s.Press.Capped || s.Press.FloorSeen != 2 {
		t.Errorf("after the second: %+v", s.Press)
	}
	if wait(1, 0.5); s.Press.Capped || len(s.Press.Ignored) != 1 {
		t.Errorf("after the third: %+v", s.Press)
	}
}
