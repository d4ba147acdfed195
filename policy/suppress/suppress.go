// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package suppress decides how much CPU the best-effort tier may use right now: a set of CPUs or a quota.
//
//	allowance = capacity × cpuSuppressThresholdPercent − LS pods − LS host applications − system
//	system    = max(node − LS pods − BE pods − host applications, reserved), at least 0; BE pods that nobody knows yet count
//	            by their class's cgroup
//	floor     = max(capacity × cpuSuppressMinPercent, 2 CPUs as a set or 2000 µs as a quota)
//	cpuset:   n = ⌈allowance⌉ CPUs;  cfsQuota: quota = allowance in milli-CPUs × 100 µs
//
// Less is taken at once. More comes in steps of at most 10 % of the node each second, and as CPUs only after it has been
// wanted for a while (Hold, HoldSmall), so that a wobble of usage does not write the cpuset again each second; a quota
// moves when the difference is 1 % of the node, and by less up to the floor. CPU pressure of the LS tier takes more than the formula and holds growth
// until it is calm; when it comes back soon, growth stops half way to what brought it, for half a minute, and each time again for twice as long; a
// pod's is not believed where best-effort pods cannot be the cause. Pods that interference detection names
// are throttled before the tier is.
//
// CPUs are taken whole core by whole core from as few NUMA nodes and caches as possible, never from LSE, reserved or
// exclusive SYSTEM CPUs, from cores that LSE and LSR pods share last, from LSR CPUs only when nothing else is left; those
// that the tier has are kept.
//
// Example: 32 CPUs, 65 %, LS pods 8, host applications 1, system 2 (1 reserved): 20.8 − 8 − 1 − 2 = 9.8, so 10 CPUs or
// 980000 µs.
//
// Input is an Input and the State of the step before, output an Output with its reason. What was not measured changes
// nothing. It imports model, api/strategy, policy/figure and the standard library only; never os, net, log, fmt or time.
package suppress

import (
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Figures of the loop.
const (
	// MinCPUs is the smallest set, MinQuota the smallest quota.
	MinCPUs           = 2
	MinQuota          = 2000 * unit.Micros(1)
	growPercent       = unit.Percent(10)
	bandPercent       = unit.Percent(1)
	growEvery         = 900 * unit.Millisecond
	milliPerCPU       = unit.MilliCPU(1000)
	microsPerMilliCPU = unit.CFSPeriod / 1000
	// Hold is how long more must be wanted before the set grows, HoldSmall how long where it is less than a step.
	Hold      = 3 * unit.Second
	HoldSmall = 15 * unit.Second
)

// Mode is how the tier is held down.
type Mode uint8

// Modes. Unknown is the state before the first decision: nothing is known of what is in force.
const (
	Unknown Mode = iota
	Off
	CPUSet
	Quota
)

// String names the mode as the strategy does.
func (m Mode) String() string {
	return [...]string{"unknown", "off", strategy.SuppressCPUSet, strategy.SuppressCFSQuota}[min(m, Quota)]
}

// Input is what one step looks at.
type Input struct {
	Now unit.Micros
	// Urgent says that a pressure trigger calls between two ticks: pressure counts as high and nothing grows.
	Urgent bool
	// Strategy is complete (strategy.Effective).
	Strategy strategy.ResourceThresholdStrategy
	Usage    Usage
	CPUs     CPUs
	Pressure Pressure
	// Antagonists are named by interference detection, the worst first.
	Antagonists []Antagonist
}

// Usage is CPU time over the last interval. Without Node, LSPods or BEPods nothing is changed. Host applications that
// were not measured count as system.
type Usage struct {
	// Capacity of the node; 0 means all its CPUs.
	Capacity unit.MilliCPU
	Node     unit.Measured[unit.MilliCPU]
	// LSPods are all pods that are not BE, LSHostApps likewise. Who has no figure yet is in neither.
	LSPods, BEPods unit.Measured[unit.MilliCPU]
	// BEUntold is what the class's cgroup has used beyond them: pods that nobody has told of yet, or that have no figure.
	BEUntold               unit.Measured[unit.MilliCPU]
	LSHostApps, BEHostApps unit.Measured[unit.MilliCPU]
	// Reserved is what the node keeps for itself: the larger of the kubelet's reservation (capacity − allocatable) and
	// the node's reservation annotation.
	Reserved unit.MilliCPU
}

// CPUs says whose the CPUs are.
type CPUs struct {
	Topology *topo.Topology
	// Reserved for the system, and exclusive to SYSTEM pods.
	Reserved, SystemExclusive topo.CPUSet
	// LSE and LSR are claimed by pods of these classes.
	LSE, LSR topo.CPUSet
}

// Antagonist is a BE pod that disturbs others.
type Antagonist struct {
	Pod string // UID
	// Used is its CPU time now.
	Used unit.MilliCPU
	// Cap that interference detection asks for, 0 for none.
	Cap unit.MilliCPU
}

// State is what a step leaves for the next; the zero value is a fresh start. It survives a restart of the agent as JSON.
type State struct {
	Mode  Mode          `json:"mode"`
	Count int           `json:"count,omitempty"`
	CPUs  topo.CPUSet   `json:"cpus"`
	Quota unit.Micros   `json:"quota,omitempty"`
	Grow  Growth        `json:"grow"`
	Press PressureState `json:"pressure"`
	Pods  []PodCap      `json:"pods,omitempty"`
}

// Output is what shall be in force.
type Output struct {
	// Mode is Unknown when nothing can be said: what is in force stays.
	Mode Mode
	// CPUs is the set of the tier; empty means that no set holds it down.
	CPUs topo.CPUSet
	// Quota of the tier's directory per unit.CFSPeriod; unit.Unlimited means none.
	Quota unit.Micros
	// Allowance is the formula's value, possibly negative; missing when the usage is.
	Allowance unit.Measured[unit.MilliCPU]
	// System is what the formula took for the system.
	System unit.MilliCPU
	// Pods are the antagonists' caps, by UID.
	Pods []PodCap
	// SharesLSR: the set has CPUs that LSR pods claim.
	SharesLSR bool
	// Starved: other classes own every CPU, and the set is on CPUs that are not meant for BE.
	Starved bool
	// Cut: pressure took something in this step.
	Cut bool
	// Changed: CPUs, Quota or Pods differ from the step before.
	Changed bool
	Reason  string
}

// Step decides once.
func Step(s State, in Input) (State, Output) {
	t := in.Strategy
	if t.Enable == nil || !*t.Enable {
		return off(s, "suppression is off: resourceUsedThresholdWithBE is not enabled")
	}
	if in.CPUs.Topology == nil || in.CPUs.Topology.All().Empty() {
		return s, s.output("no change: the node's CPUs are not known")
	}
	w := newWork(&s, &in)
	if !w.allowance.OK && s.Mode != CPUSet && s.Mode != Quota {
		return s, s.output("no change: " + w.missing)
	}
	w.pressure()
	var next State
	if t.CPUSuppressPolicy != nil && *t.CPUSuppressPolicy == strategy.SuppressCFSQuota {
		next = w.quota()
	} else {
		next = w.cpuset()
	}
	w.pods(&next)
	out := next.output("")
	out.Allowance, out.System, out.Cut = w.allowance, w.system, w.cut
	out.SharesLSR, out.Starved = next.CPUs.Overlaps(in.CPUs.LSR), w.starved
	out.Changed = s.Mode != next.Mode || !s.CPUs.Equal(next.CPUs) || s.Quota != next.Quota || !samePods(s.Pods, next.Pods)
	out.Reason = w.reason(&next)
	return next, out
}

// off lifts everything.
func off(s State, why string) (State, Output) {
	next := State{Mode: Off, Quota: unit.Unlimited}
	out := next.output(why)
	out.Changed = s.Mode != Off
	return next, out
}

// output is what a state holds in force.
func (s *State) output(why string) Output {
	out := Output{Mode: s.Mode, CPUs: s.CPUs, Quota: s.Quota, Pods: s.Pods, Reason: why}
	if s.Mode != Quota {
		out.Quota = unit.Unlimited
	}
	return out
}

// work is one step in progress.
type work struct {
	s  *State
	in *Input
	// capacity of the node, floor of the tier.
	capacity, floor unit.MilliCPU
	allowance       unit.Measured[unit.MilliCPU]
	system          unit.MilliCPU
	// untold is BEUntold where it is more than figures of different instants differ by.
	untold  unit.MilliCPU
	missing string
	// press is the new pressure state.
	press        PressureState
	cut, starved bool
	// taken is what each antagonist gives up in this step, in the order of the input.
	taken []unit.MilliCPU
	// notes are said after the formula, in their order.
	notes []string
}

func newWork(s *State, in *Input) *work {
	w := &work{s: s, in: in, press: s.Press, capacity: in.Usage.Capacity, taken: make([]unit.MilliCPU, len(in.Antagonists))}
	if w.capacity <= 0 {
		w.capacity = unit.MilliCPU(in.CPUs.Topology.All().Len()) * milliPerCPU
	}
	if p := in.Strategy.CPUSuppressMinPercent; p != nil {
		w.floor = unit.Percent(*p).Milli(w.capacity)
	}
	w.formula()
	return w
}

func (w *work) note(text string) { w.notes = append(w.notes, text) }

// granted is what the tier may use at most before this step; the whole node when nothing holds it down.
func (w *work) granted() unit.MilliCPU {
	switch w.s.Mode {
	case CPUSet:
		return unit.MilliCPU(w.s.Count) * milliPerCPU
	case Quota:
		return unit.MilliFromQuota(w.s.Quota, unit.CFSPeriod)
	default:
		return w.capacity
	}
}

// reason tells the formula with its figures, then what else bore on the result.
func (w *work) reason(next *State) string {
	var b []byte
	if w.allowance.OK {
		b = w.appendFormula(b)
	} else {
		b = append(b, "no new figures ("+w.missing+")"...)
	}
	b = append(b, ": "...)
	if next.Mode == Quota {
		b = append(b, "quota "+figure.Quota(next.Quota)...)
	} else {
		b = append(b, figure.CPUs(unit.MilliCPU(next.CPUs.Len())*milliPerCPU)+" "+next.CPUs.String()...)
	}
	for _, n := range w.notes {
		b = append(b, "; "+n...)
	}
	return string(b)
}
