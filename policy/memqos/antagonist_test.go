// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package memqos_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/memqos"
)

// hoard is a pod of two best-effort containers with 9 and 1 GiB, all of it page cache, that is held to 8 GiB.
func hoard() memqos.Input {
	a, b := be("a", 9*gib), be("b", gib)
	b.Pod = a.Pod
	in := node(a, b, be("c", 4*gib), ls("d", 4*gib))
	in.Antagonists = []memqos.Antagonist{{Pod: a.Pod, Cap: 8 * gib}}
	return in
}

// yields has containers use no more than their memory.high, as the kernel does with page cache.
func yields(in *memqos.Input, out memqos.Output) {
	for _, h := range out.Highs {
		for i := range in.Containers {
			if c := &in.Containers[i]; c.ID == h.Container {
				c.Used = unit.Got(min(c.Used.V, h.Bytes))
			}
		}
	}
}

// TestAntagonist: the pod goes down to its cap by what a tick takes (half a percent of 128 GiB), its containers by their shares; it is
// held there however its use moves; a higher cap gives more at once, and none gives all back.
func TestAntagonist(t *testing.T) {
	t.Parallel()
	in := hoard()
	var s memqos.State
	var out memqos.Output
	step := func() string {
		in.Now += unit.Second
		s, out = memqos.Step(s, in)
		got := highs(out)
		yields(&in, out)
		return got
	}
	var seen []string
	for range 6 {
		if got := step(); len(seen) == 0 || seen[len(seen)-1] != got {
			seen = append(seen, got)
		}
	}
	if d := cmp.Diff([]string{"a=8560 b=819", "a=7905 b=819", "a=7372 b=819"}, seen); d != "" {
		t.Errorf("down (-want +got):\n%s", d)
	}
	if !out.Highs[0].Less || !strings.Contains(out.Highs[0].Reason, "disturbs others about memory: its pod is held to 8") {
		t.Errorf("reason %q", out.Highs[0].Reason)
	}
	in.Containers[1].Used = unit.Got(100 * mib)
	if got := step(); got != "a=7372 b=819" {
		t.Errorf("another use moves it: %q", got)
	}
	in.Containers[0].Used = unit.Measured[unit.Bytes]{}
	if got := step(); got != "a=7372 b=819" {
		t.Errorf("without a figure: %q", got)
	}
	in.Containers[0].Used, in.Containers[1].Used = unit.Got(7200*mib), unit.Got(800*mib)
	in.Antagonists[0].Cap = 16 * gib
	if got := step(); got != "a=14745 b=1638" {
		t.Errorf("released by half: %q", got)
	}
	in.Antagonists = nil
	if got := step(); got != "" || len(s.Containers) != 0 {
		t.Errorf("released: %q, %+v", got, s.Containers)
	}
}

// TestAntagonistBounds: nobody is held below what it cannot give back, what protects it or 16 MiB; nobody who is not BE is held, and nothing
// is where the kernel cannot; whichever of two bounds is the lower one stands.
func TestAntagonistBounds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*memqos.Input)
		want   string
	}{
		"most of it is anonymous": {func(in *memqos.Input) { in.Containers[0].Reclaimable = unit.Got(gib) }, "a=8192 b=819"},
		"all of it is":            {func(in *memqos.Input) { in.Containers[0].Reclaimable = unit.Got(unit.Bytes(0)) }, "a=9216 b=819"},
		"protected":               {func(in *memqos.Input) { in.Containers[0].Low = 8 * gib }, "a=8192 b=819"},
		"next to nothing":         {func(in *memqos.Input) { in.Antagonists[0].Cap = 1 }, "a=16 b=16"},
		"its own is lower":        {func(in *memqos.Input) { in.Containers[0].High = 2 * gib }, "b=819"},
		"not best effort": {func(in *memqos.Input) {
			in.Containers[0].QoS, in.Containers[1].QoS = protocol.QoSLS, protocol.QoSSystem
		}, ""},
		"no memory.high":         {func(in *memqos.Input) { in.CanHigh = false }, ""},
		"no cap":                 {func(in *memqos.Input) { in.Antagonists[0].Cap = 0 }, ""},
		"a part is not measured": {func(in *memqos.Input) { in.Containers[1].Used.OK = false }, ""},
		"not lifted meanwhile": {func(in *memqos.Input) {
			in.Tune = true
			c := &in.Containers[0]
			c.High, c.Max, c.Stall = 9*gib, 12*gib, unit.Got[unit.Fraction](0.2)
		}, "a=7372 b=819"},
	} {
		in := hoard()
		tc.change(&in)
		var s memqos.State
		var out memqos.Output
		for range 30 {
			in.Now += unit.Second
			s, out = memqos.Step(s, in)
			for _, h := range out.Highs { // what cannot be given back stays
				for i := range in.Containers {
					c := &in.Containers[i]
					if c.ID != h.Container || h.Bytes >= c.Used.V {
						continue
					}
					if c.Reclaimable.OK {
						c.Reclaimable.V -= c.Used.V - h.Bytes
					}
					c.Used.V = h.Bytes
				}
			}
		}
		if got := highs(out); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
