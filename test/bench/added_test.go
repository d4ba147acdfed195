// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"math"
	"testing"
)

// direct takes around 1 ms; the ways add 10, 20 and 100 µs to whatever a round felt.
func ways() (direct, a, b, c sample) {
	for i := range 300 {
		v := 1e-3 + float64(i*7%50)*1e-6
		direct, a, b, c = append(direct, v), append(a, v+10e-6), append(b, v+20e-6), append(c, v+100e-6)
	}
	return direct, a, b, c
}

func TestAdded(t *testing.T) {
	t.Parallel()
	direct, a, b, c := ways()
	near := func(name string, i interval, want float64) {
		t.Helper()
		if math.Abs(i.ratio-want) > 1e-9+want*1e-6 || i.low > want+1e-9 || i.high < want-1e-9 {
			t.Errorf("%s = %s, want %g", name, i, want)
		}
	}
	near("added by a", addedBy(a, direct, 200), 10e-6)
	near("added by c", addedBy(c, direct, 200), 100e-6)
	near("b to a", ratioOfAdded(b, a, direct, 200), 2)
	near("c to b", ratioOfAdded(c, b, direct, 200), 5)
	if i := addedBy(nil, direct, 10); !math.IsNaN(i.ratio) || i.verdict(1) != "unclear" || i.atLeast(1) != "unclear" {
		t.Errorf("nothing measured gives %s, %s, %s", i, i.verdict(1), i.atLeast(1))
	}
	if x, y := addedBy(a, direct, 200), addedBy(a, direct, 200); x != y {
		t.Errorf("the same rounds gave %s, then %s", x, y)
	}
}

// A way that seems faster than direct must not make the other side of the ratio meet its goal.
func TestAddedOfNothing(t *testing.T) {
	t.Parallel()
	direct, a, _, _ := ways()
	if i := ratioOfAdded(a, direct, direct, 50); !math.IsInf(i.ratio, 1) || i.verdict(2) != "missed" {
		t.Errorf("something to nothing = %s, %s", i, i.verdict(2))
	}
	if i := ratioOfAdded(direct, a, direct, 50); i.ratio != 0 || i.verdict(2) != "ok" || i.atLeast(4) != "missed" {
		t.Errorf("nothing to something = %s", i)
	}
	if i := ratioOfAdded(direct, direct, direct, 50); i.ratio != 0 {
		t.Errorf("nothing to nothing = %s", i)
	}
}

// A round that stands still counts: 100 of 500 calls are missing.
func TestRatioOfMeans(t *testing.T) {
	t.Parallel()
	i := ratioOfMeans(sample{100, 200, 0, 100}, sample{100, 200, 100, 100}, 200)
	if math.Abs(i.ratio-0.8) > 1e-9 || i.high != 1 || i.low >= i.ratio {
		t.Errorf("ratio %s, want 0.8 below 1", i)
	}
}

func TestAtLeast(t *testing.T) {
	t.Parallel()
	for goal, want := range map[float64]string{0.85: "ok", 0.9: "ok", 0.95: "unclear", 1: "unclear", 1.01: "missed"} {
		if got := (interval{0.95, 0.9, 1}).atLeast(goal); got != want {
			t.Errorf("at least %g: %s, want %s", goal, got, want)
		}
	}
	if got := (interval{-5e-6, -10e-6, 20e-3}).seconds(); got != "-5.00 µs [-10 µs, 20.00 ms]" {
		t.Errorf("seconds: %s", got)
	}
}
