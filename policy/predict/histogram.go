// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"math"
	"slices"

	"github.com/koord-rt/koord-rt/model/unit"
)

// Buckets grow by 5 %: bucket n starts at first · (1.05ⁿ − 1) / 0.05, so that the n-th is first · 1.05ⁿ wide. There are
// ⌈log₁.₀₅(max · 0.05 / first + 1)⌉ + 1 of them; the last starts at max or above, without end (koordinator-node.md §7.3).
const growth = 0.05

// The layouts of the two resources: 158 buckets of cores, 205 of bytes.
var (
	cpuBuckets    = exponential(0.025, 1024)
	memoryBuckets = exponential(5<<20, 1<<41)
)

// exponential returns the starts of the buckets.
func exponential(first, largest float64) []float64 {
	n := int(math.Ceil(math.Log(largest*growth/first+1)/math.Log1p(growth))) + 1
	starts := make([]float64, n)
	for i := range starts {
		starts[i] = first * (math.Pow(1+growth, float64(i)) - 1) / growth
	}
	return starts
}

// epsilon is the weight below which a bucket counts as empty, where a sample of now weighs 1: 13.3 half-lives after its
// last sample a value is forgotten.
const epsilon = 1e-4

// maxHalfLives between reference and newest sample: beyond, the weights are scaled down to a newer reference. float32
// holds 2¹⁰⁰ times any number of samples there can be.
const maxHalfLives = 100

// histogram is the distribution of one resource of one model. A sample at time t weighs 2^((t − ref) / halfLife): the
// weights of older samples never need to be touched, they shrink relative to newer ones.
type histogram struct {
	starts   []float64
	halfLife unit.Micros
	// ref is where a sample weighs 1; 0 until the first.
	ref Wall
	// newest is when the last sample was taken.
	newest  Wall
	weights []float32
}

func newHistogram(starts []float64, halfLife unit.Micros) histogram {
	return histogram{starts: starts, halfLife: halfLife, weights: make([]float32, len(starts))}
}

// find is the bucket of a value: the last one that does not start above it. What lies below or above all buckets belongs
// to the first or last.
func (h *histogram) find(v float64) int {
	i, exact := slices.BinarySearch(h.starts, v)
	if exact {
		return i
	}
	return max(i-1, 0)
}

// add takes a sample of weight 1 at a time. When the clock has gone back since the last one, though nobody has told, the past moves back
// with it: what was known keeps its age.
func (h *histogram) add(v float64, at Wall) {
	switch {
	case h.ref == 0:
		h.ref, h.newest = at, at
	case at < h.newest:
		h.ref += at - h.newest
	}
	h.newest = at
	if h.exponent() > maxHalfLives {
		h.shift(at)
	}
	h.weights[h.find(v)] += float32(math.Exp2(h.exponent()))
}

// move takes the past along with a clock that was set.
func (h *histogram) move(by Wall) {
	if h.ref != 0 {
		h.ref, h.newest = h.ref+by, h.newest+by
	}
}

// exponent is how many half-lives the newest sample lies after the reference.
func (h *histogram) exponent() float64 { return float64(h.newest-h.ref) / float64(h.halfLife) }

// shift moves the reference and scales the weights with it: w' = w · 2^((ref − ref') / halfLife).
func (h *histogram) shift(ref Wall) {
	factor := math.Exp2(float64(h.ref-ref) / float64(h.halfLife))
	for i, w := range h.weights {
		h.weights[i] = float32(float64(w) * factor)
	}
	h.ref = ref
}

// unit is the weight of a sample taken together with the newest one.
func (h *histogram) unit() float64 {
	return math.Exp2(h.exponent())
}

// evidence is the weight of all that is known in samples of the age of the newest: 60 samples of the last minutes are 60,
// the same half a day later (CPU) are 30.
func (h *histogram) evidence() float64 {
	var sum float64
	for _, w := range h.weights {
		sum += float64(w)
	}
	return sum / h.unit()
}

// quantiles answers several percentiles in one pass; ps ascend. Each is the upper bound of the bucket in which the running
// sum of weights reaches p percent of all, the start of the last bucket where that is reached there only; 0 when nothing
// is known. 100 is the bucket of the largest value that counts.
func (h *histogram) quantiles(ps []int, out []float64) {
	clear(out)
	least := epsilon * h.unit()
	var total float64
	last := -1
	for i, w := range h.weights {
		if w := float64(w); w >= least {
			total += w
			last = i
		}
	}
	if last < 0 {
		return
	}
	var sum float64
	next := 0
	for i := 0; i <= last && next < len(ps); i++ {
		if w := float64(h.weights[i]); w >= least {
			sum += w
		}
		// Sums of floats may end a hair below their own total.
		for next < len(ps) && (i == last || sum >= total*float64(ps[next])/100*(1-1e-12)) {
			out[next] = h.starts[min(i+1, len(h.starts)-1)]
			next++
		}
	}
}
