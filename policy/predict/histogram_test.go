// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/koord-rt/koord-rt/model/unit"
)

const (
	start Wall = 1777629600e6 // 2026-05-01T10:00:00Z
	day        = 24 * hour
	year       = 365 * day
)

func minute(n int) Wall { return start + Wall(n)*Wall(unit.Minute) }

func quantile(h *histogram, p int) float64 {
	var out [1]float64
	h.quantiles([]int{p}, out[:])
	return out[0]
}

// TestLayouts: the parameters of koordinator-node.md §7.3.
func TestLayouts(t *testing.T) {
	t.Parallel()
	if len(cpuBuckets) != 158 || len(memoryBuckets) != 205 {
		t.Errorf("%d and %d buckets, want 158 and 205", len(cpuBuckets), len(memoryBuckets))
	}
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*b }
	if cpuBuckets[0] != 0 || !near(cpuBuckets[1], 0.025) || !near(cpuBuckets[2], 0.05125) || cpuBuckets[157] < 1024 || cpuBuckets[156] >= 1024*1.05 {
		t.Errorf("cpu: %v … %v", cpuBuckets[:3], cpuBuckets[156:])
	}
	if !near(memoryBuckets[1], 5<<20) || memoryBuckets[204] < 1<<41 {
		t.Errorf("memory: %v … %v", memoryBuckets[:3], memoryBuckets[203:])
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	h := newHistogram(cpuBuckets, hour)
	for i, s := range h.starts {
		if got := h.find(s); got != i {
			t.Errorf("start of bucket %d is in %d", i, got)
		}
		if got := h.find(math.Nextafter(s, -1)); got != max(i-1, 0) {
			t.Errorf("just below bucket %d is in %d", i, got)
		}
	}
	if h.find(1e9) != 157 || h.find(0) != 0 {
		t.Error("beyond the ends")
	}
}

func TestQuantiles(t *testing.T) {
	t.Parallel()
	whole := []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for name, c := range map[string]struct {
		samples []float64
		p       int
		want    float64
	}{
		"nothing is known":            {nil, 95, 0},
		"one sample, upper bound":     {[]float64{1.5}, 50, 2},
		"start belongs to the bucket": {[]float64{2}, 50, 3},
		"zero":                        {[]float64{0}, 100, 1},
		"half of ten":                 {[]float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 50, 5},
		"p90 of ten":                  {[]float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 90, 9},
		"p95 of ten":                  {[]float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 95, 10},
		"most are low":                {[]float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 8}, 90, 2},
		"largest":                     {[]float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 8}, 100, 9},
		"the last bucket has no end":  {[]float64{400}, 100, 10},
		"the last two share its start": {
			[]float64{9.5, 400}, 50, 10,
		},
	} {
		h := newHistogram(whole, hour)
		for _, v := range c.samples {
			h.add(v, start)
		}
		if got := quantile(&h, c.p); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestDecay(t *testing.T) {
	t.Parallel()
	const hl = 12 * hour
	for name, c := range map[string]struct {
		early, late int
		apart       unit.Micros
		want        float64
	}{
		"ten and four, half a day apart: 5 to 4": {10, 4, hl, 2},
		"ten and six, half a day apart: 5 to 6":  {10, 6, hl, 4},
		"ten and six at once":                    {10, 6, 0, 2},
		"a thousand, ten days ago":               {1000, 1, 20 * hl, 4},
	} {
		h := newHistogram([]float64{0, 1, 2, 3, 4, 5}, hl)
		for range c.early {
			h.add(1.5, start)
		}
		for range c.late {
			h.add(3.5, start+Wall(c.apart))
		}
		if got := quantile(&h, 50); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	// A value that has not come back for 13.3 half-lives is no maximum any more.
	h := newHistogram([]float64{0, 1, 2, 3, 4, 5}, hl)
	h.add(4.5, start)
	h.add(1.5, start+Wall(13*hl))
	if got := quantile(&h, 100); got != 5 {
		t.Errorf("maximum after 13 half-lives is %v, want 5", got)
	}
	h.add(1.5, start+Wall(14*hl))
	if got := quantile(&h, 100); got != 2 {
		t.Errorf("maximum after 14 half-lives is %v, want 2", got)
	}
}

// TestAgainstAllSamples compares with the definition: weights 2^(-age/halfLife) of every sample ever taken.
func TestAgainstAllSamples(t *testing.T) {
	t.Parallel()
	const hl = hour
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 11))
		h := newHistogram(cpuBuckets, hl)
		type taken struct {
			bucket int
			at     Wall
		}
		var all []taken
		now := start
		for i := range 4000 {
			now += Wall(r.IntN(600)) * Wall(unit.Second) // passes the reference shift several times
			v := math.Exp(r.NormFloat64())
			h.add(v, now)
			all = append(all, taken{h.find(v), now})
			if i%50 != 0 {
				continue
			}
			weights := make([]float64, len(cpuBuckets))
			var total float64
			for _, s := range all {
				w := math.Exp2(-float64(now-s.at) / float64(hl))
				weights[s.bucket] += w
				total += w
			}
			if math.Abs(h.evidence()-total) > 1e-4*total {
				t.Fatalf("seed %d, sample %d: evidence %v, want %v", seed, i, h.evidence(), total)
			}
			for b, w := range weights {
				if got := float64(h.weights[b]) / h.unit(); math.Abs(got-w) > 1e-4*w+1e-9 {
					t.Fatalf("seed %d, sample %d: bucket %d weighs %v, want %v", seed, i, b, got, w)
				}
			}
		}
		if h.exponent() > maxHalfLives {
			t.Errorf("reference is %v half-lives back", h.exponent())
		}
	}
}

func TestClockOfTheWall(t *testing.T) {
	t.Parallel()
	const hl = 12 * hour
	fill := func(h *histogram, n int, at func(i int) Wall) {
		r := rand.New(rand.NewPCG(3, 3))
		for i := range n {
			h.add(r.Float64()*8, at(i))
		}
	}
	steady, back := newHistogram(cpuBuckets, hl), newHistogram(cpuBuckets, hl)
	fill(&steady, 3000, minute)
	fill(&back, 3000, func(i int) Wall {
		if i >= 1500 {
			return minute(i-1) - Wall(30*year) // the minute of the step has no length
		}
		return minute(i)
	})
	if math.Abs(steady.evidence()-back.evidence()) > 1 {
		t.Errorf("evidence %v, after a step back %v", steady.evidence(), back.evidence())
	}
	for _, p := range percentiles {
		if a, b := quantile(&steady, p), quantile(&back, p); a != b {
			t.Errorf("p%d is %v, after a step back %v", p, a, b)
		}
	}
	// Ahead is the same as having been away: the past has hardly any weight.
	ahead := newHistogram(cpuBuckets, hl)
	fill(&ahead, 3000, minute)
	ahead.add(1, minute(3000)+Wall(200*year))
	if e := ahead.evidence(); e != 1 {
		t.Errorf("evidence after centuries is %v", e)
	}
}
