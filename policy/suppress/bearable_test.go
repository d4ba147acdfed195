// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package suppress

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/model/unit"
)

// TestPressureThatIsNeitherHighNorCalm: one pod always waits a little, at 7 %, between calm and high. A cut by a spike of another ends a minute after it
// all the same, as calm would end it: spikes five minutes apart are met by the first cut each time, not one below the other, and a restart of the agent in
// the middle changes nothing. One that comes back soon finds BE held half way, which is what was learnt of the first.
func TestPressureThatIsNeitherHighNorCalm(t *testing.T) {
	t.Parallel()
	s, in := settled(t, nil)
	var out Output
	wait := func(seconds int, spike unit.Fraction) {
		t.Helper()
		for range seconds {
			in.Now += unit.Second
			in.Pressure = Pressure{Pods: []Stall{{Pod: "usual", Some: 0.07}, {Pod: "web", Some: spike}}}
			in.Usage = use(4.8, float64(s.Count), 0, 0)
			s, out = Step(s, in)
			s = kept(t, s)
		}
	}
	for i := range 4 {
		if wait(1, 0.1); s.Count != 12 || !s.Press.Capped {
			t.Fatalf("spike %d: %d CPUs: %s", i, s.Count, out.Reason)
		}
		if wait(59, 0.01); s.Count != 12 || !strings.Contains(out.Reason, "held by LS pressure") {
			t.Errorf("spike %d, 59 s later: %d CPUs: %s", i, s.Count, out.Reason)
		}
		if wait(1, 0.01); s.Press.Capped || !strings.Contains(out.Reason, "pressure cap lifted: LS has waited for less than 10% of the time, for 60 s") {
			t.Errorf("spike %d, a minute later: %+v: %s", i, s.Press, out.Reason)
		}
		if s.Press.Past.Good != 12000 || s.Press.Past.Bad != 16000 || s.Press.Past.HoldTo != 0 {
			t.Errorf("spike %d: learnt %+v", i, s.Press.Past)
		}
		if wait(239, 0.01); s.Count != 16 {
			t.Errorf("spike %d, five minutes later: %d CPUs: %s", i, s.Count, out.Reason)
		}
	}
	wait(1, 0.1)
	wait(90, 0.01)
	wait(1, 0.1) // soon again
	if wait(90, 0.01); s.Press.Capped || s.Count != 14 {
		t.Errorf("one that comes back: %d CPUs: %s", s.Count, out.Reason)
	}
	// A pressure that is high once in a minute never ends so.
	s, in = settled(t, nil)
	for range 3 {
		wait(1, 0.1)
		if wait(58, 0.01); !s.Press.Capped {
			t.Errorf("high a minute ago: %s", out.Reason)
		}
	}
	// What an older koordlet has kept does not say when pressure was high last: the minute begins with what is read first.
	s, in = settled(t, nil)
	wait(1, 0.1)
	s.Press.HighAt = 0
	if wait(60, 0.01); !s.Press.Capped {
		t.Errorf("an older state: lifted too early: %s", out.Reason)
	}
	if wait(1, 0.01); s.Press.Capped {
		t.Errorf("an older state: %s", out.Reason)
	}
}
