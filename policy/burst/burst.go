// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package burst decides how far the CPU quotas of LS containers are raised above what the kubelet asked, for as long as
// the node has CPUs to spare (policies cfsQuotaBurstOnly and auto of cpuBurstStrategy).
//
//	quota  = base × factor, factor in 1 … cfsQuotaBurstPercent/100; up is × 1.2, down × 0.8
//	base   = the quota without this loop: kubelet's or batch, divided by the normalisation ratio (policy/draft)
//	pool   = (node − LSE, LSR and BE pods) / (CPUs − Σ requests of LSE and LSR pods), a Load:
//	         overload from sharePoolThresholdPercent on, on average and now; idle below 0.9 of it, on average and now; else
//	         cooling
//	room   = 0.9 × sharePoolThresholdPercent × the pool's CPUs − the larger of both: what all quotas together may rise by,
//	         in one step for one figure; a hundredth of the pool is none
//	tokens = cfsQuotaBurstPeriodSeconds × (cfsQuotaBurstPercent − 100) at most, as many negative at least; using p percent
//	         of the base takes p − 100 a second from 100 on and gives 100 − p below 60; no burst without tokens; −1 has no
//	         bucket
//
// A container is raised when it was throttled in a hundredth of its periods or more, or used four fifths of its quota while its pod was
// throttled in as many of the pod's, the pool is idle and it has tokens; when
// all that ask would take more than there is room, each gets the same part of its step, so that nobody is raised into an overload; a
// figure from before a container's last step says nothing about what the step has done, and moves it neither way;
// it comes down when the pool is overloaded, its tokens are spent, or it has not needed the room for two minutes; it is
// back at its base at once when the policy no longer asks. The factor, not the quota, is what lasts: a new base (resize,
// ratio) never leaves an old quota standing. A pod's quota is raised by what its containers' are.
//
// Tuning does the same, up to half as much again, for containers of any LS pod that were throttled hard for a minute
// although the node is healthy, where the policy leaves quotas alone.
//
// Examples: base 200000 and 300 %: 240000, 288000, … 600000. Period 100 s and 300 %: 20000 tokens; at 250 % of the base
// −150 a second, at 40 % +60.
//
// Input is an Input and the State of the step before, output the raised quotas with their reasons. policy/draft composes
// the factor with the other owners of the quota; kernel/apply orders pod and container. It imports model, api,
// policy/figure and the standard library only; never os, net, log, fmt or time.
package burst

import (
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Figures of the loop.
const (
	upBy   = unit.Fraction(1.2)
	downBy = 0.8
	// throttledLeast is the part of the periods below which throttling is left alone.
	throttledLeast = unit.Fraction(0.01)
	// fullPart of its quota is all of it, as far as a second of ten periods can be measured.
	fullPart = 0.8
	// stepEvery spaces two changes of one factor: a call between two ticks does not count twice.
	stepEvery = 900 * unit.Millisecond
	// unneeded is after how long without throttling, and with use below the base, a factor comes down.
	unneeded = 2 * unit.Minute
	// coolingPart of the threshold begins cooling, and so does room for 1/leastRoom of the pool: nobody is written to for less.
	coolingPart = 0.9
	leastRoom   = 100
)

// Input is what one step looks at.
type Input struct {
	Now unit.Micros
	// Strategy is complete (strategy.Effective).
	Strategy strategy.CPUBurstStrategy
	// PercentMax caps cfsQuotaBurstPercent where an annotation gives it; 0 does not.
	PercentMax unit.Percent
	// Tune gives room to throttled containers even where the policy does not.
	Tune bool
	Pool Pool
	// Pods that run. LSE, LSR and BE pods are passed over.
	Pods []Pod
}

// Pool is the use of the CPUs that LS pods share, averaged over a few seconds.
type Pool struct {
	// CPUs of the node, and what LSE and LSR pods request of them.
	CPUs, Requests unit.MilliCPU
	// Node, LSE and LSR pods together, BE pods.
	Node, Exclusive, BE unit.Measured[unit.MilliCPU]
	// Now is what the pool used at last, measured At; the average stands in where that was not measured.
	Now unit.Measured[unit.MilliCPU]
	At  unit.Micros
}

// Pod is one pod.
type Pod struct {
	UID string
	// QoS is the label's class, QoSNone without one.
	QoS protocol.QoS
	// Ask is the cpuBurst annotation, nil without one.
	Ask *protocol.CPUBurst
	// Base is the pod's quota without this loop; ≤ 0 is none.
	Base unit.Micros
	// Throttled is the part of the last periods in which the pod's own quota was spent, measured At.
	Throttled  unit.Measured[unit.Fraction]
	At         unit.Micros
	Containers []Container
}

// Container is one container.
type Container struct {
	ID string
	// Base is the quota without this loop; ≤ 0 is none, and nothing to raise.
	Base unit.Micros
	Used unit.Measured[unit.MilliCPU]
	// Throttled is the part of the last periods in which it was, measured At.
	Throttled unit.Measured[unit.Fraction]
	At        unit.Micros
}

// State is what a step leaves for the next: one entry for each container that may burst, in the order of the input. It
// survives a restart of the agent as JSON.
type State struct {
	Containers []ContainerState `json:"containers,omitempty"`
}

// ContainerState is one container's.
type ContainerState struct {
	ID string `json:"id"`
	// Factor ≥ 1 raises the quota.
	Factor unit.Fraction `json:"factor"`
	// Tokens of the bucket, as of At. Capacity is the bucket's size, negative without a bucket.
	Tokens   float64     `json:"tokens"`
	Capacity float64     `json:"capacity"`
	At       unit.Micros `json:"at"`
	// StepAt is the last change of the factor, HardSince since when it is throttled hard, NeededAt when it last used the
	// room; 0 for never.
	StepAt    unit.Micros `json:"stepAt,omitempty"`
	HardSince unit.Micros `json:"hardSince,omitempty"`
	NeededAt  unit.Micros `json:"neededAt,omitempty"`
	// Reason of the factor.
	Reason string `json:"reason,omitempty"`
}

// Raise is one quota above its base.
type Raise struct {
	Pod string // UID
	// Container is empty for the pod's own quota.
	Container string
	// Factor raises the container's; a pod's is raised by Plus, the sum of its containers'.
	Factor unit.Fraction
	Plus   unit.Micros
	// Quota is the result as far as this loop knows.
	Quota  unit.Micros
	Reason string
}

// Output of a step. Who is not in Raises stands at its base.
type Output struct {
	Load Load
	// Reason tells the load with its figures.
	Reason string
	// Raises in the order of pods and containers, a pod after its containers.
	Raises []Raise
	// Changed: some factor differs from the step before.
	Changed bool
}

// Step decides once.
func Step(s State, in Input) (State, Output) {
	var out Output
	var room unit.MilliCPU
	out.Load, room, out.Reason = load(&in.Pool, in.Strategy.SharePoolThresholdPercent)
	if out.Load == Idle && in.Pool.At != 0 && in.Pool.At <= s.newest() {
		out.Load, out.Reason = Cooling, out.Reason+"; what it had room for is given"
	}
	next := State{Containers: make([]ContainerState, 0, len(s.Containers)+8)}
	var rises []rise
	for i := range in.Pods {
		p := &in.Pods[i]
		for j := range p.Containers {
			c := &p.Containers[j]
			before := s.find(c.ID, len(next.Containers))
			after, up, keep := stepContainer(&in, p, c, before, out.Load)
			out.Changed = out.Changed || before.Factor != after.Factor
			if !keep {
				continue
			}
			if up.by > 0 {
				up.at = len(next.Containers)
				rises = append(rises, up)
			}
			next.Containers = append(next.Containers, after)
		}
	}
	out.Changed = next.lift(in.Now, rises, room) || out.Changed
	out.Raises = next.raises(in.Pods)
	return next, out
}

// newest is the last change of any factor.
func (s *State) newest() (at unit.Micros) {
	for i := range s.Containers {
		at = max(at, s.Containers[i].StepAt)
	}
	return at
}

// raises are the quotas above their bases. The state has its containers in the order of the pods.
func (s *State) raises(pods []Pod) (out []Raise) {
	at := 0
	for i := range pods {
		p := &pods[i]
		var plus unit.Micros
		raised := 0
		for j := range p.Containers {
			c := &p.Containers[j]
			if at == len(s.Containers) || s.Containers[at].ID != c.ID {
				continue // it may not burst
			}
			is := &s.Containers[at]
			at++
			if is.Factor <= 1 {
				continue
			}
			quota := is.Factor.Raise(c.Base)
			plus += quota - c.Base
			raised++
			out = append(out, Raise{Pod: p.UID, Container: c.ID, Factor: is.Factor, Plus: quota - c.Base, Quota: quota, Reason: is.Reason})
		}
		if plus > 0 && p.Base > 0 {
			out = append(out, Raise{
				Pod: p.UID, Plus: plus, Quota: p.Base + plus, Reason: "room for " + figure.Count(raised, "container") + " that burst",
			})
		}
	}
	return out
}

// find is the state of a container, which is most likely at the same place as before; a fresh one stands at its base.
func (s *State) find(id string, at int) ContainerState {
	if at >= len(s.Containers) || s.Containers[at].ID != id {
		at = slices.IndexFunc(s.Containers, func(c ContainerState) bool { return c.ID == id })
	}
	if at < 0 {
		return ContainerState{ID: id, Factor: 1, Capacity: -1}
	}
	c := s.Containers[at]
	if !(c.Factor > 1) { // also what is no number, from a file
		c.Factor = 1
	}
	return c
}
