// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package memqos decides, on kernels without asynchronous reclaim per cgroup, what is reclaimed before anything is evicted,
// and what memory.high is for a while. Static protections and limits are policy/container's.
//
//	mark   a container above start = base × wmarkRatio is reclaimed down to stop = start − base × wmarkScalePermill/10000,
//	       base = min(memory.high, memory.max)
//	booked BE use ≥ Σ BE requests × memoryRequestUtilizationPercent: down to 2 points below
//	node   near: use > capacity × (memoryEvictThresholdPercent − 5): down to 7 points below the threshold
//	       tight: within 2 points of it: besides, BE containers get no more than they have (memory.high), and the others
//	       are reclaimed too; near again at 5 points below. That lasts a minute, and as long as the threshold is
//	       exceeded: a node that rests below it evicts nobody, and must not hold anybody for ever either
//
// Who gives first: the highest wmarkMinAdj, BE before others, the lowest priority, the most above its request. Nobody is
// reclaimed below memory.low, and for nothing: whoever gave less than a tenth of what was asked, or stalls on memory
// already, is left alone for a while. A tick takes at most half a percent of the node, twice that when it is tight.
//
// A BE pod that disturbs others by its memory is held to what interference detection says, by memory.high of its containers.
//
// A container that stalls at its memory.high while the node is calm gets room up to memory.max by quarters, and gives it
// back when it no longer needs it (tuning).
//
// Examples: base 8 GiB, ratio 95, scale 50: from 7.6 GiB down to 7.56. BE use 24 of 30 GiB requested, 80 %: reclaim 0.6 GiB
// down to 78 %; 20 of 30: nothing.
//
// Input is an Input and the State of the step before, output reclaims and memory.high values with their reasons; what is
// not listed stands at its own value. It imports model, api, policy/figure and the standard library only; never os, net,
// log, fmt or time.
package memqos

import (
	"cmp"
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Figures of the loop.
const (
	nearPoints  = unit.Percent(5)
	calmPoints  = unit.Percent(7)
	tightPoints = unit.Percent(2)
	bookedBack  = unit.Percent(2)
	// A tick takes 1/tickPart of the node, at least leastTick.
	tickPart  = 200
	leastTick = unit.Bytes(64 << 20)
	// keepLeast is left to everybody.
	keepLeast = unit.Bytes(16 << 20)
	// dryPart of what was asked is too little; dryFor is how long such a container is left alone.
	dryPart = 10
	dryFor  = 30 * unit.Second
	// A container is held anew when it has lost 1/holdBand of what it is held to.
	holdBand = 100
	// squeezeFor is how long a tight node below the threshold holds BE and reclaims others.
	squeezeFor = unit.Minute
	// stallBE and stallOther are memory pressures from which a container is left alone.
	stallBE    = unit.Fraction(0.3)
	stallOther = unit.Fraction(0.05)
)

// Input is what one step looks at.
type Input struct {
	Now unit.Micros
	// Strategy is complete (strategy.Effective). Without its enable the node and booked rules rest.
	Strategy strategy.ResourceThresholdStrategy
	// CanReclaim: the kernel has memory.reclaim (5.19). CanHigh: it has memory.high; alone it stands in for reclaim of BE.
	CanReclaim, CanHigh bool
	// Tune gives room at memory.high while the node is calm.
	Tune     bool
	Capacity unit.Bytes
	// Used by the node, as evictions count it.
	Used       unit.Measured[unit.Bytes]
	Containers []Container
	// Antagonists are BE pods that are held for disturbing others, one entry for a pod.
	Antagonists []Antagonist
}

// Container is one running container.
type Container struct {
	ID, Pod string // Pod is the UID
	QoS     protocol.QoS
	// Priority is spec.priority.
	Priority int32
	// Used is the charge, memory.current or memory.usage_in_bytes, which is what the kernel holds against its limits;
	// Reclaimable what of it could be given back: file cache, and anonymous memory where there is swap. Not told, it is all
	// above Low.
	Used, Reclaimable unit.Measured[unit.Bytes]
	// Request is the memory request (batch-memory for BE).
	Request unit.Bytes
	// Max is memory.max and High the memory.high that stands without this loop, both 0 for none; Low is the larger of
	// memory.min and memory.low.
	Max, High, Low unit.Bytes
	// Stall is PSI "some" of its memory.
	Stall unit.Measured[unit.Fraction]
	// Got is what the last reclaim brought, not OK when none was asked.
	Got unit.Measured[unit.Bytes]
	// WmarkRatio 0 leaves it without marks (class off, or a kernel that keeps them itself); WmarkScale is in 0.01 %.
	WmarkRatio unit.Percent
	WmarkScale int64
	// MinAdj is wmarkMinAdj, the order under node pressure.
	MinAdj int64
}

// Pressure is the state of the node's memory.
type Pressure uint8

// Pressures. Calm is entered 7 points below the eviction threshold, Near above 5 points below it, Tight within 2 points;
// Tight is left for Near at 5 points below. Without a figure the state stays, and nobody is reclaimed for the node.
const (
	Calm Pressure = iota
	Near
	Tight
)

// String names the pressure.
func (p Pressure) String() string { return [...]string{"calm", "near", "tight"}[min(p, Tight)] }

// State is what a step leaves for the next, by container id; the zero value is a fresh start.
type State struct {
	Pressure Pressure `json:"pressure"`
	// TightAt is since when it has been Tight.
	TightAt    unit.Micros      `json:"tightAt,omitempty"`
	Booked     bool             `json:"booked,omitempty"`
	Containers []ContainerState `json:"containers,omitempty"`
}

// ContainerState is one container's. Instants are 0 when they do not apply.
type ContainerState struct {
	ID string `json:"id"`
	// Active: above its mark and not yet down at the stop.
	Active bool `json:"active,omitempty"`
	// Asked is what this step asked to reclaim, DryTo until when it is left alone.
	Asked unit.Bytes  `json:"asked,omitempty"`
	DryTo unit.Micros `json:"dryTo,omitempty"`
	// Held is the memory.high that a tight node gives it, 0 for none.
	Held unit.Bytes `json:"held,omitempty"`
	// Cap is the memory.high of an antagonist's container, 0 for none, Target what it goes down to, and Told what its pod was held to
	// when that was calculated.
	Cap    unit.Bytes `json:"cap,omitempty"`
	Target unit.Bytes `json:"target,omitempty"`
	Told   unit.Bytes `json:"told,omitempty"`
	// Lift is the part of the way from memory.high to memory.max that tuning gives, LiftAt its last change.
	Lift   unit.Fraction `json:"lift,omitempty"`
	LiftAt unit.Micros   `json:"liftAt,omitempty"`
}

// Reclaim is one write to memory.reclaim.
type Reclaim struct {
	Container, Pod string
	Bytes          unit.Bytes
	Reason         string
}

// High is one memory.high that differs from what stands without this loop.
type High struct {
	Container, Pod string
	Bytes          unit.Bytes
	// Less: it is below what the container has without this loop; else it is room above that.
	Less   bool
	Reason string
}

// Output of a step.
type Output struct {
	Pressure Pressure
	// Reclaims in the order in which they should be done; Highs by container id.
	Reclaims []Reclaim
	Highs    []High
	// Reclaiming: something is reclaimed for the node, so eviction may wait a little.
	Reclaiming bool
	Reason     string
}

// Step decides once.
func Step(s State, in Input) (State, Output) {
	n := len(in.Containers)
	w := &work{in: &in, given: make([]unit.Bytes, n), why: make([]string, n), next: make([]ContainerState, n)}
	next := State{Pressure: s.Pressure, TightAt: s.TightAt, Booked: s.Booked}
	w.budget = max(in.Capacity/tickPart, leastTick)
	for i := range in.Containers {
		w.next[i] = w.begin(&in.Containers[i], s.find(in.Containers[i].ID))
	}
	w.order()
	w.node(&next)
	if next.Pressure == Tight {
		w.budget *= 2
	}
	w.marks()
	w.booked(&next)
	w.relieve(&next)
	w.antagonists()
	for i := range in.Containers {
		w.tune(i, next.Pressure)
	}
	out := w.result(&next)
	for i := range w.next {
		if c := w.next[i]; c != (ContainerState{ID: c.ID}) {
			next.Containers = append(next.Containers, c)
		}
	}
	slices.SortFunc(next.Containers, func(a, b ContainerState) int { return cmp.Compare(a.ID, b.ID) })
	next.Containers = slices.CompactFunc(next.Containers, func(a, b ContainerState) bool { return a.ID == b.ID })
	return next, out
}

func (s *State) find(id string) ContainerState {
	i, ok := slices.BinarySearchFunc(s.Containers, id, func(c ContainerState, id string) int { return cmp.Compare(c.ID, id) })
	if !ok {
		return ContainerState{ID: id}
	}
	return s.Containers[i]
}

// work is one step in progress; slices are in the order of the input's containers.
type work struct {
	in *Input
	// budget is what this tick may still take.
	budget unit.Bytes
	given  []unit.Bytes
	why    []string
	next   []ContainerState
	// ranked are the indexes in the order in which they give.
	ranked []int
	reason string
	// squeeze: BE is held where it is, and others are reclaimed.
	squeeze bool
	// forNode: something was taken for the node.
	forNode bool
}

// result writes the output.
func (w *work) result(next *State) Output {
	out := Output{Pressure: next.Pressure, Reclaiming: w.forNode, Reason: w.reason}
	for _, i := range w.ranked {
		c, amount := &w.in.Containers[i], w.given[i]
		if amount <= 0 {
			continue
		}
		w.next[i].Asked = amount
		if w.in.CanReclaim {
			out.Reclaims = append(out.Reclaims, Reclaim{
				c.ID, c.Pod, amount, "reclaim " + figure.Bytes(amount) + " of " + figure.Bytes(c.Used.V) + ": " + w.why[i],
			})
		} else {
			out.Highs = append(out.Highs, High{
				c.ID, c.Pod, (c.Used.V - amount).PageDown(), true, "no memory.reclaim in this kernel, for one tick: " + w.why[i],
			})
		}
	}
	for i := range w.next {
		if h, ok := w.high(i); ok && !slices.ContainsFunc(out.Highs, func(o High) bool { return o.Container == h.Container }) {
			out.Highs = append(out.Highs, h)
		}
	}
	slices.SortFunc(out.Highs, func(a, b High) int { return cmp.Compare(a.Container, b.Container) })
	return out
}
