// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package capacity

import (
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Amounts are CPU and memory, never negative.
type Amounts struct {
	CPU    unit.MilliCPU
	Memory unit.Bytes
}

// Plus is the sum; what no int64 holds saturates.
func (a Amounts) Plus(b Amounts) Amounts {
	return Amounts{CPU: unit.Add(a.CPU, b.CPU), Memory: unit.Add(a.Memory, b.Memory)}
}

// Minus is the difference, not below zero.
func (a Amounts) Minus(b Amounts) Amounts {
	return Amounts{CPU: max(a.CPU-b.CPU, 0), Memory: max(a.Memory-b.Memory, 0)}
}

// Max is the larger of each.
func (a Amounts) Max(b Amounts) Amounts {
	return Amounts{CPU: max(a.CPU, b.CPU), Memory: max(a.Memory, b.Memory)}
}

// Min is the smaller of each.
func (a Amounts) Min(b Amounts) Amounts {
	return Amounts{CPU: min(a.CPU, b.CPU), Memory: min(a.Memory, b.Memory)}
}

// Percent is a part of each, rounded down.
func (a Amounts) Percent(cpu, memory unit.Percent) Amounts {
	return Amounts{CPU: cpu.Milli(a.CPU), Memory: memory.Of(a.Memory)}
}

// split is one of n equal parts, rounded up so that together they are no less.
func (a Amounts) split(n int) Amounts {
	return Amounts{CPU: part(a.CPU, n), Memory: part(a.Memory, n)}
}

func part[T ~int64](v T, n int) T {
	if n <= 1 {
		return v
	}
	out := v / T(n)
	if v%T(n) > 0 {
		out++
	}
	return out
}

// age is a duration for people.
func age(m unit.Micros) string { return figure.Duration(m) }
