// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package unit

import "math"

// Lengths of time, and what a loop's Now counts: microseconds of a clock that never runs backwards and does not stop
// while the machine sleeps (CLOCK_BOOTTIME), so that an instant outlives the process and a change of the wall clock.
const (
	Millisecond Micros = 1000
	Second      Micros = 1000 * Millisecond
	Minute      Micros = 60 * Second
)

// Seconds is m in seconds.
func (m Micros) Seconds() float64 { return float64(m) / float64(Second) }

// Fraction is a part of a whole: 0.75 is 75 %. Percents of kernel files (PSI) are divided by 100 where they are read.
type Fraction float64

// Part is a/b as a Fraction, 0 when b is not positive.
func Part[T ~int64](a, b T) Fraction {
	if b <= 0 {
		return 0
	}
	return Fraction(float64(a) / float64(b))
}

// Raise is q × f, rounded; an unlimited q and factors of 1 or less (or none at all) leave q as it is.
func (f Fraction) Raise(q Micros) Micros {
	if q <= 0 || !(f > 1) || float64(q)*float64(f) > 1<<53 {
		return q
	}
	return Micros(float64(q)*float64(f) + 0.5)
}

// Fraction is p as a Fraction.
func (p Percent) Fraction() Fraction { return Fraction(p) / 100 }

// Milli is p percent of m without overflow; 0 when either is not positive.
func (p Percent) Milli(m MilliCPU) MilliCPU {
	if m <= 0 || p <= 0 {
		return 0
	}
	return MilliCPU(scale(int64(m), int64(p), 100))
}

// Measured is a figure that may be missing: the zero value says that nothing was measured, which is not the same as 0.
type Measured[T ~int64 | ~float64] struct {
	V  T    `json:"v"`
	OK bool `json:"ok"`
}

// Got is a figure that was measured. What cannot be one (not a number, infinite) counts as missing.
func Got[T ~int64 | ~float64](v T) Measured[T] {
	if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
		return Measured[T]{}
	}
	return Measured[T]{V: v, OK: true}
}
