// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// sample is a list of seconds; sorted tells whether quantiles may be read.
type sample []float64

func (s sample) sorted() sample {
	out := slices.Clone(s)
	slices.Sort(out)
	return out
}

// quantile of a sorted sample, the smallest value that at least q of all do not exceed.
func (s sample) quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return s[min(max(int(math.Ceil(q*float64(len(s))))-1, 0), len(s)-1)]
}

func (s sample) mean() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, v := range s {
		sum += v
	}
	return sum / float64(len(s))
}

// within is the part, 0 to 1, that does not exceed bound.
func (s sample) within(bound float64) float64 {
	n := 0
	for _, v := range s {
		if v <= bound {
			n++
		}
	}
	return float64(n) / float64(len(s)) // NaN where there is none
}

// quantiles that raw files list.
var quantiles = []float64{0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1}

// line is every quantile of a sample.
func (s sample) line() string {
	o := s.sorted()
	text := fmt.Sprintf("n=%d mean=%s", len(o), took(o.mean()))
	for _, q := range quantiles {
		text += fmt.Sprintf(" p%g=%s", q*100, took(o.quantile(q)))
	}
	return text
}

// took is a duration in seconds for people, three digits.
func took(s float64) string {
	if math.IsNaN(s) || math.IsInf(s, 0) {
		return "none"
	}
	switch d := time.Duration(s * 1e9); {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.2f µs", s*1e6)
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", s*1e6)
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.2f ms", s*1e3)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", s*1e3)
	}
	return fmt.Sprintf("%.2f s", s)
}

// interval is a ratio with its 95 % confidence interval.
type interval struct{ ratio, low, high float64 }

func (i interval) String() string { return fmt.Sprintf("%.4f [%.4f, %.4f]", i.ratio, i.low, i.high) }

// verdict is ok or missed when the whole interval is on one side of the goal; one that holds the goal shows neither.
func (i interval) verdict(goal float64) string {
	switch {
	case i.high <= goal:
		return "ok"
	case i.low > goal:
		return "missed"
	}
	return "unclear"
}

// ratioOfMedians is median(a)/median(b) of paired samples; the interval comes from a percentile bootstrap over pairs, so
// that what both sides of a pair felt stays together. The seed is fixed: the same pairs give the same interval.
func ratioOfMedians(a, b sample, resamples int) interval {
	n := min(len(a), len(b))
	if n == 0 {
		return interval{math.NaN(), math.NaN(), math.NaN()}
	}
	r := rand.New(rand.NewPCG(1, 2))
	ratios, x, y := make(sample, resamples), make(sample, n), make(sample, n)
	for i := range ratios {
		for j := range n {
			k := r.IntN(n)
			x[j], y[j] = a[k], b[k]
		}
		slices.Sort(x)
		slices.Sort(y)
		ratios[i] = x.median() / y.median()
	}
	slices.Sort(ratios)
	return interval{a[:n].sorted().median() / b[:n].sorted().median(), ratios.quantile(0.025), ratios.quantile(0.975)}
}

// median of a sorted sample.
func (s sample) median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
