// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package suppress

import (
	"encoding/json"
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
				data, err := json.Marshal(s)
				if err != nil {
					t.Fatal(err)
				}
				s = State{}
				if err := json.Unmarshal(data, &s); err != nil {
					t.Fatal(err)
				}
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
