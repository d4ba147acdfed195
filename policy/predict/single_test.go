// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"math"
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/model/unit"
)

// TestSingle: a histogram by itself is that of the models: buckets of 5 %, the upper bound of the one that is reached. The bucket of
// one core ends at 0.5 · (1.05²³ − 1).
func TestSingle(t *testing.T) {
	t.Parallel()
	h := NewCPU(24 * hour)
	if got := h.Quantiles(50, 90); got[0] != 0 || got[1] != 0 {
		t.Errorf("nothing is known: %v", got)
	}
	for _, v := range []float64{math.NaN(), -1, math.Inf(1)} {
		if h.Add(v, 1) {
			t.Errorf("%g was learned", v)
		}
	}
	for i := range 10 {
		if !h.Add(map[bool]float64{true: 1, false: 4}[i < 6], Wall(i+1)*Wall(unit.Minute)) {
			t.Fatal(i)
		}
	}
	got := h.Quantiles(50, 90)
	if one := 0.5 * (math.Pow(1.05, 23) - 1); math.Abs(got[0]-one) > 1e-9 || got[1] < 4 || got[1] > 4*1.06 {
		t.Errorf("p50 and p90 %v, want %g and a little above 4", got, one)
	}
	c := h.Clone()
	c.Add(1000, Wall(11*unit.Minute))
	if !slices.Equal(h.Quantiles(50, 90), got) || slices.Equal(c.Quantiles(50, 99), h.Quantiles(50, 99)) {
		t.Error("a clone has the original's content")
	}
	again := NewCPU(24 * hour)
	if err := again.Restore(h.Distribution()); err != nil || !slices.Equal(again.Quantiles(50, 90), got) {
		t.Errorf("restored %v, was %v (%v)", again.Quantiles(50, 90), got, err)
	}
	if err := again.Restore(Distribution{Total: math.NaN()}); err == nil || !slices.Equal(again.Quantiles(50, 90), got) {
		t.Errorf("restored what is nothing: %v", err)
	}
	if m := NewMemory(24 * hour); !m.Add(1<<30, 1) || m.Quantiles(100)[0] < 1<<30 || m.Quantiles(100)[0] > 1.06*(1<<30) {
		t.Errorf("memory: %v", m.Quantiles(100))
	}
}
