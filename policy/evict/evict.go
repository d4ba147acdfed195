// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package evict decides which pods must leave the node because memory or CPU is short.
//
//	memory   use > memoryEvictThresholdPercent of capacity: release use − capacity × memoryEvictLowerPercent
//	cpu      use ≥ cpuEvictThresholdPercent of capacity: release use − capacity × cpuEvictLowerPercent
//	booked   Σ requests > …AllocatableEvictThresholdPercent of allocatable: release down to …LowerPercent
//	starved  limit/request ≤ cpuEvictBESatisfactionLowerPercent while use/limit ≥ cpuEvictBEUsageThresholdPercent (or the
//	         limit is below one CPU): release request × (upper − limit/request), in requests; on the average over
//	         cpuEvictTimeWindowSeconds and now, the smaller of both
//	waiting  CPU pressure of the BE tier over the window > cpuEvictPSIThresholdPercent: release use × (1 − threshold/pressure)
//
// An average over the window goes on telling of victims that are long gone: cpu and waiting too must be crossed on average and now, and the
// smaller of both is released.
//
// Where the kernel has no CPU pressure, waiting falls back to starved with the pressure threshold as usage threshold.
//
// What pods that already leave still hold counts as released, as long as they can be expected to go. Victims are taken in
// order until the rest is covered; one that turns out not to be needed is spared. A pod whose use is not known is no victim,
// and what was not measured evicts nobody. After a round with victims comes a pause, unless their budgets refused all of them: pauses that are
// together longer than a budget's no holds would else lead back to the first of those for ever, and never to the next.
//
// While the node is in danger memory evictions wait neither for the pause nor for reclaim nor for disruption budgets; what
// is booked frees no memory by itself, so its evictions do.
//
// Victims are chosen all at once, and whoever carries that out asks for one after another. Each step says whether those whose turn has not come
// are still needed (Rest), and what for (Demand.Left). In danger they are chosen again, once, so that they need not wait for it; whom the feature may
// not take is not counted on then.
//
// Examples: capacity 100 GiB, use 75, threshold 70: lower 68, release 7 GiB. BE request 10 CPUs, limit 5, lower 60, upper
// 80: satisfaction 0.5, release 3 CPUs.
//
// Input is an Input and the State of the step before, output the evictions and one Decision for each feature that had
// something to decide. It imports model, api, policy/figure and the standard library only; never os, net, log, fmt or
// time.
package evict

import (
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Input is what one step looks at.
type Input struct {
	Now unit.Micros
	// Strategy is complete (strategy.Effective).
	Strategy strategy.ResourceThresholdStrategy
	// Features that may evict.
	Features Features
	Memory   Memory
	CPU      CPU
	// Pods are all pods of the node.
	Pods []Pod
	// Danger says why the node is about to kill by itself ("80 MiB of memory are available"); empty while it is not.
	Danger string
	// MemoryPause and CPUPause follow a round with victims; 0 means 4 s and 20 s.
	MemoryPause, CPUPause unit.Micros
	// Patience is how long a pod that leaves counts as released; 0 means 2 min, and in danger it is half a minute at most. A
	// pod that is still there then is stuck.
	Patience unit.Micros
}

// Pauses and patience where the input has none.
const (
	DefaultMemoryPause = 4 * unit.Second
	DefaultCPUPause    = 20 * unit.Second
	DefaultPatience    = 2 * unit.Minute
	dangerPatience     = 30 * unit.Second
	// reclaimFirst is how long eviction waits for reclaim that is under way.
	reclaimFirst = 3 * unit.Second
)

// Memory of the node.
type Memory struct {
	Capacity unit.Bytes
	// Used is the node's MemTotal − MemAvailable, whatever page cache the collect policy has it report.
	Used unit.Measured[unit.Bytes]
	// PerCPU is free memory on lists of the CPUs, which Used still has for used. Who leaves fills them.
	PerCPU unit.Bytes
	// BatchAllocatable and MidAllocatable are what the node offers as batch-memory and mid-memory.
	BatchAllocatable, MidAllocatable unit.Measured[unit.Bytes]
	// Reclaiming: proactive reclaim took something a moment ago, so eviction may wait a little.
	Reclaiming bool
}

// InUse is Used without what is free on lists of the CPUs.
func (m *Memory) InUse() unit.Measured[unit.Bytes] {
	out := m.Used
	if out.OK {
		out.V = max(out.V-m.PerCPU, 0)
	}
	return out
}

// CPU of the node.
type CPU struct {
	Capacity unit.MilliCPU
	// Used by the node, average over the window; UsedNow is the newest figure.
	Used, UsedNow                    unit.Measured[unit.MilliCPU]
	BatchAllocatable, MidAllocatable unit.Measured[unit.MilliCPU]
	// Average and Current describe the BE tier over the window and now.
	Average, Current Tier
	// Covered is how much of the window has samples. Less than a third decides nothing.
	Covered unit.Micros
	// Pressure is the BE tier's PSI "some" over the window, PressureNow the newest figure. NoPressure says that the kernel does not tell it at all.
	Pressure, PressureNow unit.Measured[unit.Fraction]
	NoPressure            bool
}

// Tier is the CPU of the BE pods.
type Tier struct {
	// Used and Request (batch-cpu) of all BE pods; Limit is what suppression leaves them: the smaller of the CPUs of their
	// set and the quota.
	Used, Request, Limit unit.Measured[unit.MilliCPU]
}

// State is what a step leaves for the next; the zero value is a fresh start. Instants are 0 when they do not apply.
type State struct {
	// MemoryAt and CPUAt are the last rounds with victims.
	MemoryAt unit.Micros `json:"memoryAt,omitempty"`
	CPUAt    unit.Micros `json:"cpuAt,omitempty"`
	// MemoryOf and CPUOf are the UIDs of their victims.
	MemoryOf []string `json:"memoryOf,omitempty"`
	CPUOf    []string `json:"cpuOf,omitempty"`
	// OverAt is since when memory has been above the threshold.
	OverAt unit.Micros `json:"overAt,omitempty"`
}

// Demand is an amount to release.
type Demand[T ~int64] struct {
	// Release is the whole, Pending what leaving pods still hold, Chosen what the new victims hold. Left is what pods that were asked to go do not
	// hold of what there is to release down to the lower mark, before the new victims are chosen.
	Release, Pending, Chosen, Left T
}

// Decision is what one feature found. Features that are off or have nothing to look at have none.
type Decision struct {
	Feature Feature
	// Band is whose bookings are looked at, by the features that look at them; no other feature has one.
	Band protocol.PriorityClass
	// Over: the threshold is crossed.
	Over bool
	// Rest is what it means for victims of earlier steps whose turn has not come.
	Rest   Rest
	CPU    Demand[unit.MilliCPU]
	Memory Demand[unit.Bytes]
	Reason string
	// Limited says what the feature does without on this kernel; empty when it has everything.
	Limited string
}

// Eviction is one victim.
type Eviction struct {
	Pod, Namespace, Name string // Pod is the UID
	Feature              Feature
	Band                 protocol.PriorityClass // the decision's
	// CPU or Memory is what its end releases.
	CPU    unit.MilliCPU
	Memory unit.Bytes
	// RespectBudget: the pod's disruption budget holds. It does not while the node is in danger.
	RespectBudget bool
	Reason        string
}

// Output of a step.
type Output struct {
	Evictions []Eviction
	Decisions []Decision
	// Danger is the input's, while evictions are enabled.
	Danger string
}

// Step decides once: memory first, because it cannot wait, then CPU. Pods chosen by one feature count as leaving for the
// next.
func Step(s State, in Input) (State, Output) {
	if t := in.Strategy; t.Enable == nil || !*t.Enable {
		return State{}, Output{}
	}
	if in.Now < max(s.MemoryAt, s.CPUAt, s.OverAt) {
		s = State{} // another clock
	}
	r := &round{in: &in, t: &in.Strategy, leaving: make([]bool, len(in.Pods)), waits: make([]bool, len(in.Pods)), out: Output{Danger: in.Danger}}
	patience := or(in.Patience, DefaultPatience)
	if in.Danger != "" {
		patience = min(patience, dangerPatience)
	}
	for i := range in.Pods {
		p := &in.Pods[i]
		r.leaving[i] = p.Leaving && (p.LeavingSince == 0 || in.Now-p.LeavingSince < patience)
		r.waits[i] = r.leaving[i] && (p.Held == ByTurn || p.Held == ByDanger)
	}
	r.memory(&s)
	r.cpu(&s)
	return s, r.out
}

func or(m, d unit.Micros) unit.Micros {
	if m > 0 {
		return m
	}
	return d
}

// round is one step in progress.
type round struct {
	in *Input
	t  *strategy.ResourceThresholdStrategy
	// leaving marks the pods that count as released, waits those of them that nobody has asked to go.
	leaving, waits []bool
	// rest is why no victim may be taken now, for the resource at hand; empty when some may.
	rest string
	// budget: disruption budgets hold for the resource at hand.
	budget bool
	out    Output
}

func (r *round) has(f Feature) bool { return r.in.Features.Has(f) }

// memory runs the memory features.
func (r *round) memory(s *State) {
	over := r.memoryOver()
	switch {
	case !over:
		s.OverAt = 0
	case s.OverAt == 0:
		s.OverAt = r.in.Now
	}
	wait := ""
	pause := or(r.in.MemoryPause, DefaultMemoryPause)
	switch {
	case s.MemoryAt != 0 && r.in.Now-s.MemoryAt < pause && !r.vain(s.MemoryOf):
		wait = "the last round was " + figure.Duration(r.in.Now-s.MemoryAt) + " ago, pause of " + figure.Duration(pause)
	case over && r.in.Memory.Reclaiming && r.in.Now-s.OverAt < reclaimFirst:
		wait = "reclaim is under way"
	}
	before := len(r.out.Evictions)
	r.forUse(wait)
	r.memoryUsage(BEMemoryEvict)
	r.budget, r.rest = true, wait
	r.memoryBooked()
	r.forUse(wait)
	r.memoryUsage(MemoryEvict)
	if victims := r.out.Evictions[before:]; len(victims) > 0 {
		s.MemoryAt, s.MemoryOf = r.in.Now, uids(victims)
	}
}

// forUse sets what holds for the features that go by the memory in use: in danger neither wait nor budgets.
func (r *round) forUse(wait string) {
	if r.budget, r.rest = r.in.Danger == "", wait; !r.budget {
		r.rest = ""
	}
}

// cpu runs the CPU features.
func (r *round) cpu(s *State) {
	r.budget, r.rest = true, ""
	pause := or(r.in.CPUPause, DefaultCPUPause)
	if s.CPUAt != 0 && r.in.Now-s.CPUAt < pause && !r.vain(s.CPUOf) {
		r.rest = "the last round was " + figure.Duration(r.in.Now-s.CPUAt) + " ago, pause of " + figure.Duration(pause)
	}
	before := len(r.out.Evictions)
	r.waiting()
	r.starved()
	r.cpuBooked()
	r.cpuUsage()
	if victims := r.out.Evictions[before:]; len(victims) > 0 {
		s.CPUAt, s.CPUOf = r.in.Now, uids(victims)
	}
}

// vain reports whether none of a round's victims goes: each is here, and its budget has refused it. One of whom no answer is known yet may go,
// and so may one whose eviction has failed: the server may have made it all the same. Were a failure no answer to wait for, a server that
// fails would be asked for one pod after another.
func (r *round) vain(victims []string) bool {
	left := len(victims)
	for i := range r.in.Pods {
		if p := &r.in.Pods[i]; p.Held == ByBudget && !p.Leaving && slices.Contains(victims, p.UID) {
			left--
		}
	}
	return left == 0 && len(victims) > 0
}

func uids(victims []Eviction) (out []string) {
	for i := range victims {
		out = append(out, victims[i].Pod)
	}
	return out
}
