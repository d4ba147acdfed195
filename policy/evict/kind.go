// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// kind is what differs between the resources that pods are evicted for.
type kind[T ~int64] struct {
	// used and requested are a pod's amounts; not ok when it is not known.
	used, requested func(*Pod) (T, bool)
	// share is a percentage of an amount.
	share func(unit.Percent, T) T
	// text writes an amount, part one that the whole follows.
	text, part func(T) string
	// put notes an amount in an eviction, keep what is to be released in a decision.
	put  func(*Eviction, T)
	keep func(*Decision, Demand[T])
}

var ofMemory = kind[unit.Bytes]{
	used:      func(p *Pod) (unit.Bytes, bool) { return p.MemoryUsed.V, p.MemoryUsed.OK },
	requested: func(p *Pod) (unit.Bytes, bool) { return p.MemoryRequest, true },
	share:     unit.Percent.Of,
	text:      figure.Bytes,
	part:      figure.Bytes,
	put:       func(e *Eviction, b unit.Bytes) { e.Memory = b },
	keep:      func(d *Decision, m Demand[unit.Bytes]) { d.Memory = m },
}

var ofCPU = kind[unit.MilliCPU]{
	used:      func(p *Pod) (unit.MilliCPU, bool) { return p.CPUUsed.V, p.CPUUsed.OK },
	requested: func(p *Pod) (unit.MilliCPU, bool) { return p.CPURequest, true },
	share:     unit.Percent.Milli,
	text:      figure.CPUs,
	part:      figure.Cores,
	put:       func(e *Eviction, m unit.MilliCPU) { e.CPU = m },
	keep:      func(d *Decision, m Demand[unit.MilliCPU]) { d.CPU = m },
}

// greed is what a pod uses.
func (k *kind[T]) greed(p *Pod) float64 {
	amount, _ := k.used(p)
	return float64(amount)
}
