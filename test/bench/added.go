// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// bootstrap is f of the centres (sample.median, sample.mean) of samples that were taken together, round by round, with a
// 95 % interval from resamples of rounds: what all samples of a round felt stays together. The seed is fixed, as in
// ratioOfMedians.
func bootstrap(resamples int, centre func(sorted sample) float64, f func(centres []float64) float64, samples ...sample) interval {
	n := math.MaxInt
	for _, s := range samples {
		n = min(n, len(s))
	}
	if len(samples) == 0 || n == 0 {
		return interval{math.NaN(), math.NaN(), math.NaN()}
	}
	r := rand.New(rand.NewPCG(1, 2))
	centres, scratch, out := make([]float64, len(samples)), make(sample, n), make(sample, resamples)
	picks := make([]int, n)
	of := func() float64 {
		for k, s := range samples {
			for j, i := range picks {
				scratch[j] = s[i]
			}
			slices.Sort(scratch)
			centres[k] = centre(scratch)
		}
		return f(centres)
	}
	for i := range out {
		for j := range picks {
			picks[j] = r.IntN(n)
		}
		out[i] = of()
	}
	for j := range picks {
		picks[j] = j
	}
	slices.Sort(out)
	return interval{of(), out.quantile(0.025), out.quantile(0.975)}
}

// addedBy is how many seconds the median of way lies above that of direct.
func addedBy(way, direct sample, resamples int) interval {
	return bootstrap(resamples, sample.median, func(m []float64) float64 { return m[0] - m[1] }, way, direct)
}

// ratioOfAdded is how many times more a adds to direct than b does.
func ratioOfAdded(a, b, direct sample, resamples int) interval {
	return bootstrap(resamples, sample.median, func(m []float64) float64 { return timesMore(m[0]-m[2], m[1]-m[2]) }, a, b, direct)
}

// ratioOfMeans is mean(a)/mean(b): of rates over rounds of one length, the ratio of all calls. Unlike medians it does not
// pass over a round that stood still.
func ratioOfMeans(a, b sample, resamples int) interval {
	return bootstrap(resamples, sample.mean, func(m []float64) float64 { return m[0] / m[1] }, a, b)
}

// timesMore is a/b for quantities of which what is not above zero counts as nothing: nothing is 0 times anything, and
// anything else is infinitely more than nothing. A noisy measurement then cannot meet a goal by its sign.
func timesMore(a, b float64) float64 {
	switch {
	case a <= 0:
		return 0
	case b <= 0:
		return math.Inf(1)
	}
	return a / b
}

// atLeast is the verdict for a goal that lies below: ok or missed when the whole interval is on one side of it.
func (i interval) atLeast(goal float64) string {
	switch {
	case i.low >= goal:
		return "ok"
	case i.high < goal:
		return "missed"
	}
	return "unclear"
}

// seconds is the interval for people where it holds seconds.
func (i interval) seconds() string {
	return fmt.Sprintf("%s [%s, %s]", tookSigned(i.ratio), tookSigned(i.low), tookSigned(i.high))
}

// tookSigned is took for differences, which can be negative.
func tookSigned(s float64) string {
	if s < 0 {
		return "-" + took(-s)
	}
	return took(s)
}
