// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package sample holds the nouns of measuring: who was measured (Subject), what (Metric), one measurement (Sample), the
// summary of a window of them (Summary), and the step from counters to rates (Rate).
//
// Collectors make samples from what kernel/* reads, the window stores and summarises them, policies read summaries. Every
// value is immutable and nothing here reads a clock: time is what the caller passes, microseconds of the loops' clock
// (CLOCK_BOOTTIME, see unit.Second), because wall time, which jumps, cannot order samples. It imports model/unit,
// api/protocol and the standard library only.
package sample

import "github.com/koord-rt/koord-rt/model/unit"

// Sample is one measurement. A value that could not be read is no sample: nothing stands for "unknown".
type Sample struct {
	Subject Subject
	Metric  Metric
	// Value in the metric's unit; never negative, infinite or NaN.
	Value float64
	// At is when it was measured, on the loops' clock.
	At unit.Micros
}

// Summary is what a window of samples says. With Count 0 nothing is known and all other fields are 0.
type Summary struct {
	// Avg is the mean of the samples; seconds without one do not count.
	Avg float64
	// Percentiles are by nearest rank: the smallest sample that at least p percent of the samples do not exceed.
	P50, P90, P95, P99 float64
	Max                float64
	// Last is the newest sample of the window.
	Last  float64
	Count int
	// From and To are the times of the oldest and newest sample.
	From, To unit.Micros
	// Covered is the share of the window that its samples stand for, each for the interval in which it is measured (those of Slow
	// metrics for ten seconds), 0..1.
	Covered float64
}

// Known reports whether there was any sample.
func (s Summary) Known() bool { return s.Count > 0 }

// Rank is the 1-based nearest rank ⌈n·p/100⌉ of the p-th percentile among n sorted samples, p in 1..100; 0 when n is 0.
// Upstream's koordlet takes ⌊n·p/100⌋ instead, which is one lower wherever the product is not whole.
func Rank(n, p int) int { return (n*p + 99) / 100 }
