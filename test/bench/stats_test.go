// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"math"
	"strings"
	"testing"
)

func TestQuantiles(t *testing.T) {
	t.Parallel()
	s := sample{5, 1, 4, 2, 3}.sorted()
	for q, want := range map[float64]float64{0: 1, 0.2: 1, 0.5: 3, 0.8: 4, 0.99: 5, 1: 5} {
		if got := s.quantile(q); got != want {
			t.Errorf("quantile %g = %g, want %g", q, got, want)
		}
	}
	if m := (sample{1, 2, 3, 10}).median(); m != 2.5 {
		t.Errorf("median = %g", m)
	}
	if !math.IsNaN(sample{}.quantile(0.5)) {
		t.Error("a quantile of nothing is a number")
	}
}

func TestHistogram(t *testing.T) {
	t.Parallel()
	before := histograms{"a": {bounds: []float64{1, 2, 4}, counts: []uint64{1, 1, 1}, count: 1, sum: 0.5}}
	after := histograms{"a": {bounds: []float64{1, 2, 4}, counts: []uint64{1, 5, 9}, count: 11, sum: 30.5}}
	h := after.since(before)["a"]
	if h.count != 10 || h.sum != 30 || h.mean() != 3 {
		t.Fatalf("difference: %+v", h)
	}
	// Four between 1 and 2, four between 2 and 4, two above 4.
	for q, want := range map[float64]float64{0.2: 1.5, 0.4: 2, 0.6: 3, 0.99: 4} {
		if got := h.quantile(q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %g = %g, want %g", q, got, want)
		}
	}
	if got := h.within(2); got != 0.4 {
		t.Errorf("within 2: %g", got)
	}
	if !math.IsNaN(h.within(3)) {
		t.Error("3 is no bound of the histogram")
	}
	sum := histograms{}
	sum.add(histograms{"a": h})
	sum.add(histograms{"a": h})
	if got := sum["a"]; got.count != 20 || got.counts[2] != 16 {
		t.Errorf("sum: %+v", got)
	}
}

func TestRatioOfMedians(t *testing.T) {
	t.Parallel()
	var a, b sample
	for i := range 400 {
		v := 1 + float64(i%20)/100
		a, b = append(a, 1.1*v), append(b, v)
	}
	i := ratioOfMedians(a, b, 200)
	if math.Abs(i.ratio-1.1) > 1e-9 || i.low > 1.1+1e-9 || i.high < 1.1-1e-9 || i.high-i.low > 0.2 {
		t.Errorf("interval %s, want it around 1.1", i)
	}
	for goal, want := range map[float64]string{1.12: "ok", 1.1: "unclear", 1.05: "missed"} {
		if got := (interval{1.1, 1.08, 1.12}).verdict(goal); got != want {
			t.Errorf("verdict for the goal %g = %s, want %s", goal, got, want)
		}
	}
	if again := ratioOfMedians(a, b, 200); again != i {
		t.Errorf("the same pairs gave %s, then %s", i, again)
	}
}

func TestReplace(t *testing.T) {
	t.Parallel()
	r := newReport("x")
	r.judge("one", "≤ 1", "2", false)
	page, err := r.replace("top\n<!-- figures:x -->\nold\n<!-- end:x -->\nbottom\n")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(page, "| one | ≤ 1 | 2 | missed |") || strings.Contains(page, "old") || !strings.HasPrefix(page, "top\n") || !strings.HasSuffix(page, "\nbottom\n") {
		t.Errorf("page:\n%s", page)
	}
	if _, err := r.replace("no markers"); err == nil {
		t.Error("a page without markers was accepted")
	}
}
