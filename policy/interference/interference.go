// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package interference finds pods that others disturb, the best-effort pod that most likely does it, and what to take from
// that pod until the disturbance is over.
//
//	baseline  per pod and signal: mean and variance that forget by half in 30 min (weighted increments, West 1979);
//	          disturbed samples teach nothing, after half an hour they are the new normal
//	high      x > mean + 3σ, x > mean × (1 + the signal's margin) and x ≥ the signal's least; σ is at least mean/20 and
//	          the signal's least/20
//	disturbed three high samples in a row; over after five samples below mean + 1.5σ, or without any for four and a half
//	          minutes. A pod whose own use of the resource is high is busy, not disturbed (but for the cache: disturbed pods
//	          need more CPU time), and one throttled by its own limit, which it meets because it is busy, disturbs itself
//	distress  of a resource: the largest (x − mean)/max(mean, the signal's least) of any such signal of any pod
//	suspect   score = correlation of its use with distress (half-life 2 min) × its part of the BE tier's use, where the
//	          correlation is at least 0.4, or it uses half of it all and does not run against the distress
//
// The worst suspect is tried: its use is cut in half (memory by a fifth). If distress does not fall by 30 % within the trial it is innocent,
// gets everything back at once and is left alone for five minutes; the next one is tried. If it does fall, it stays cut,
// is cut again while others are still disturbed, and gets back twice as much every ten seconds once all have been calm for
// a minute, or for twice as long after each relapse. Are others, once calm, disturbed anew twice although it was cut three times, it
// was innocent, and is left alone for half an hour. One suspect of a resource is on trial at a time. History, trial and calm
// are an operator's to choose (Pace); the times here are the defaults.
//
// Caps of CPU and cache are suppression's to put in force, of memory the memory loop's, of disks block IO's, of the network the uplink's loop's.
//
// A sample is given to one step only, so that a slow signal (CPI, once a minute) is not counted every second.
//
// Input is an Input and the State of the step before, output victims, caps and what has changed, with reasons. It imports
// model, api/protocol, policy/figure and the standard library only; never os, net, log, fmt or time.
package interference

import (
	"cmp"
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Input is what one step looks at.
type Input struct {
	Now  unit.Micros
	Pods []Pod
	// Pace is how patient it is; the zero value is DefaultPace.
	Pace Pace
}

// Pace are the times that an operator may choose.
type Pace struct {
	// History must have been measured before a pod is judged, Trial is how long a suspect is held before its effect is, Calm
	// must pass before a guilty pod is released: in steps of a sixth of it, and it is cut again after a half.
	History, Trial, Calm unit.Micros
}

// DefaultPace is two minutes, 20 s and a minute.
func DefaultPace() Pace {
	return Pace{History: 2 * unit.Minute, Trial: 20 * unit.Second, Calm: unit.Minute}
}

// trialMost is how long a trial waits for new samples.
func (p *Pace) trialMost() unit.Micros { return 9 * p.Trial }

// recentHalfLife smooths distress for the trial, at whose end nearly all of it must be of the trial.
func (p *Pace) recentHalfLife() unit.Micros { return p.Trial / 4 }

func (p *Pace) giveEvery() unit.Micros { return p.Calm / 6 }

func (p *Pace) cutAgain() unit.Micros { return p.Calm / 2 }

// Pod is one running pod. Pods of every class but BE can be victims, BE pods suspects.
type Pod struct {
	UID, Name string // Name is namespace/name, for reasons
	QoS       protocol.QoS
	// Signals are the samples since the last step; not OK where there is no new one.
	Signals [NumSignals]unit.Measured[Level]
	// Used is its use of each resource now: CPUs, bytes per second of memory bandwidth, bytes, bytes per second of disk and
	// network.
	Used [NumResources]unit.Measured[Level]
}

// State is what a step leaves for the next, pods in the order of the input. It survives a restart of the agent as JSON.
type State struct {
	Pods     []PodState                  `json:"pods,omitempty"`
	Suspects []Suspicion                 `json:"suspects,omitempty"`
	Resource [NumResources]ResourceState `json:"resource"`
	At       unit.Micros                 `json:"at,omitempty"`
}

// PodState is what is known of one pod.
type PodState struct {
	UID     string               `json:"uid"`
	Signals [NumSignals]Baseline `json:"signals"`
	// Own are the baselines of its own use.
	Own [NumResources]Baseline `json:"own"`
	// Use of each resource against distress; BE pods only.
	Use [NumResources]Correlation `json:"use"`
	// Innocent is until when it is left alone, by resource.
	Innocent [NumResources]unit.Micros `json:"innocent"`
}

// ResourceState is the distress about one resource.
type ResourceState struct {
	// Now is this step's, Recent forgets by half in a quarter of a trial, Fresh counts samples.
	Now    float64 `json:"now,omitempty"`
	Recent float64 `json:"recent,omitempty"`
	Fresh  int64   `json:"fresh,omitempty"`
	// CalmSince is since when no pod is disturbed, 0 while one is.
	CalmSince unit.Micros `json:"calmSince,omitempty"`
	// Mean and Var of the distress, for correlations; Weight counts what they know.
	Mean   float64 `json:"mean,omitempty"`
	Var    float64 `json:"var,omitempty"`
	Weight float64 `json:"weight,omitempty"`
}

// Victim is a disturbed pod.
type Victim struct {
	Pod, Name string
	Signal    Signal
	// Value and what is usual for it.
	Value, Mean Level
	Since       unit.Micros
	Reason      string
}

// Cap is what a suspect is held to.
type Cap struct {
	Pod, Name string
	Resource  Resource
	Phase     Phase
	// Limit in the resource's unit.
	Limit Level
	// Correlation with the distress, and its part of the tier's use, when it was accused.
	Correlation, Part unit.Fraction
	Reason            string
}

// CPU is the limit in milli-CPUs; only of CPU and Cache, which are both taken as CPU time.
func (c *Cap) CPU() unit.MilliCPU { return unit.MilliCPU(float64(c.Limit)*1000 + 0.5) }

// Event is a change worth telling: somebody became a victim, was accused, acquitted or released.
type Event struct {
	Pod, Name string
	Kind      EventKind
	Text      string
}

// EventKind is what became of a pod.
type EventKind uint8

// The kinds, in the order in which they come: of a victim the first two, of a suspect the others.
const (
	Disturbed   EventKind = iota
	Undisturbed           // not disturbed any more
	Suspected             // held down to see whether it is the one
	Convicted             // it is: others are better since it is held down
	Tightened             // held to less, or again
	Acquitted             // it is not, and has everything back
	Released              // nobody is disturbed any more
)

// Output of a step.
type Output struct {
	// Victims by pod and signal, caps by pod and resource. Whoever is in no cap has everything.
	Victims []Victim
	Caps    []Cap
	Events  []Event
	// Distress by resource: 0.5 is half above what is usual.
	Distress [NumResources]unit.Fraction
}

// Step decides once.
func Step(s State, in Input) (State, Output) {
	if in.Now < s.At {
		s = restart(s) // another clock
	}
	if in.Pace == (Pace{}) {
		in.Pace = DefaultPace()
	}
	w := &work{in: &in, s: &s, elapsed: min(in.Now-s.At, longest)}
	w.next = State{At: in.Now, Resource: s.Resource, Pods: make([]PodState, len(in.Pods))}
	if s.At == 0 {
		w.elapsed = 0
	}
	for i := range in.Pods {
		p := &in.Pods[i]
		state := &w.next.Pods[i]
		if before := s.find(p.UID, i); before != nil {
			*state = *before
		}
		state.UID = p.UID
		w.observe(p, state)
	}
	for r := range NumResources {
		w.distress(r)
	}
	w.correlate()
	w.judge()
	for r := range NumResources {
		w.accuse(r)
		w.out.Distress[r] = unit.Fraction(w.next.Resource[r].Now)
	}
	w.caps()
	slices.SortFunc(w.out.Victims, func(a, b Victim) int { return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Signal, b.Signal)) })
	return w.next, w.out
}

// restart keeps what does not depend on the clock: the baselines.
func restart(s State) State {
	out := State{Pods: slices.Clone(s.Pods)}
	for i := range out.Pods {
		p := &out.Pods[i]
		p.Innocent, p.Use = [NumResources]unit.Micros{}, [NumResources]Correlation{}
		for k := range p.Signals {
			p.Signals[k].reset()
		}
		for r := range p.Own {
			p.Own[r].reset()
		}
	}
	return out
}

// work is one step in progress.
type work struct {
	in      *Input
	s       *State
	next    State
	elapsed unit.Micros
	// peak is the largest excess seen in this step by resource, fresh the number of new samples, disturbed the number of
	// victims.
	peak             [NumResources]float64
	fresh, disturbed [NumResources]int
	out              Output
}

// find is the state of a pod, which is most likely at the same place as before; nil without one.
func (s *State) find(uid string, at int) *PodState {
	if at < len(s.Pods) && s.Pods[at].UID == uid {
		return &s.Pods[at]
	}
	for i := range s.Pods {
		if s.Pods[i].UID == uid {
			return &s.Pods[i]
		}
	}
	return nil
}

func (w *work) event(pod, name string, kind EventKind, text string) {
	w.out.Events = append(w.out.Events, Event{pod, name, kind, text})
}
