// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package decide is the middle of the node agent: from what was measured to what shall be in force, once a tick and
// whenever a pressure trigger calls.
//
// Inputs are Facts: the window, the pods, the View and the node, as they are now; outputs are the dynamic state of the
// handoff, evictions, and a text for each loop. The loops themselves are policy's: one file here puts together what one
// loop looks at. It imports model, policy, engine (for its Members) and the agent's own pods and kube; it reads no file and
// no clock.
package decide

import (
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/burst"
	"github.com/koord-rt/koord-rt/policy/evict"
	"github.com/koord-rt/koord-rt/policy/interference"
	"github.com/koord-rt/koord-rt/policy/memqos"
	"github.com/koord-rt/koord-rt/policy/suppress"
	"github.com/koord-rt/koord-rt/policy/sysctl"
)

// Window answers what was measured.
type Window interface {
	// Query summarises the samples of (from, to].
	Query(s sample.Subject, m sample.Metric, from, to unit.Micros) sample.Summary
}

// Facts are all that one step looks at.
type Facts struct {
	Now unit.Micros
	// Urgent: a pressure trigger calls between two ticks.
	Urgent bool
	// Interval between two ticks, Slow between two readings of what is Slow; a sample older than two of them is none. 0 in
	// Slow means DefaultSlow.
	Interval, Slow unit.Micros
	Window         Window
	// View is the engine's; its strategy is complete.
	View *node.View
	// Members are the pods that run, as the runtime tells.
	Members []engine.Member
	// Pods are what Kubernetes says of them; a pod may be missing here.
	Pods *pods.Snapshot
	// Node is nil while it has not been told.
	Node *kube.Node
	// NoPressure: this kernel does not tell the pressure of a cgroup.
	NoPressure bool
	// EvictFeatures may evict; MemoryPause and CPUPause follow a round.
	EvictFeatures         evict.Features
	MemoryPause, CPUPause unit.Micros
	// Refused are the UIDs of pods whose disruption budget has just refused an eviction.
	Refused map[string]bool
	// Leaving are the UIDs of pods that were evicted, since when.
	Leaving map[string]unit.Micros
	// NoReclaim says why the kernel cannot be asked to reclaim from a cgroup; empty when it can. Reclaiming: a round is under
	// way, and the memory loop waits for it. Reclaimed is what the last one has brought, by container id, told once.
	NoReclaim  string
	Reclaiming bool
	Reclaimed  map[string]unit.Bytes
	// Parameters of the node as they stand; one that is missing does not exist on this kernel.
	Parameters map[plan.Knob]int64
	// Tune gives containers room that the policies do not: those that are throttled, or stall on memory, on a calm node.
	Tune bool
}

// DefaultSlow is the interval of slow readings where none is told.
const DefaultSlow = 10 * unit.Second

// State is what one step leaves for the next. It survives a restart of the agent as JSON.
type State struct {
	Suppress suppress.State `json:"suppress"`
	Evict    evict.State    `json:"evict"`
	// TierHeld: the quota of the best-effort tier is ours.
	TierHeld     bool               `json:"tierHeld,omitempty"`
	Burst        burst.State        `json:"burst"`
	Memory       memqos.State       `json:"memory"`
	Interference interference.State `json:"interference"`
	// Apps are the settings of host applications that are ours.
	Apps   []HeldSetting `json:"apps,omitempty"`
	Sysctl sysctl.State  `json:"sysctl"`
	// tick is what the last full step decided: an urgent one, which looks at CPU suppression only, leaves it in force.
	tick Tick
}

// Tick is what only full steps decide.
type Tick struct {
	Burst        burst.Output
	Memory       memqos.Output
	Interference interference.Output
}

// Outcome is what one step decided.
type Outcome struct {
	// Dynamic is for the handoff.
	Dynamic node.Dynamic
	// Tier is for the cgroup of the best-effort class; empty when it is nobody's business. Apps is for host applications,
	// Node for the node's kernel parameters.
	Tier, Apps, Node plan.Plan
	// Problems are fields of the strategy that cannot act here, and why.
	Problems  []string
	Suppress  suppress.Output
	Evict     evict.Output
	Evictions []evict.Eviction
	// Tick is what the last full step decided. Reclaims and Events are of this step.
	Tick
	Reclaims []memqos.Reclaim
	Events   []interference.Event
	// Owns: what of the kernel is ours has changed, so the State has to be kept before anything is written.
	Owns bool
}

// Step decides once.
func Step(s State, f *Facts) (State, Outcome) {
	a := account(f)
	var out Outcome
	if !f.Urgent {
		s.Interference, s.tick.Interference = interference.Step(s.Interference, interferenceInput(f, a, s.Interference.At))
		out.Events = s.tick.Interference.Events
	}
	if !f.caps() {
		s.Interference.Suspects = nil // what is not put in force proves nothing
	}
	s.Suppress, out.Suppress = suppress.Step(s.Suppress, suppressInput(f, a, antagonists(s.Interference.Suspects, a)))
	held := s.TierHeld
	out.Tier = tier(f, &s, &out.Suppress)
	if !f.Urgent {
		s.Burst, s.tick.Burst = burst.Step(s.Burst, burstInput(f, a))
		if !f.Reclaiming {
			s.Memory, s.tick.Memory = memqos.Step(s.Memory, memoryInput(f, a))
			out.Reclaims = s.tick.Memory.Reclaims
		}
		s.Evict, out.Evict = evict.Step(s.Evict, evictInput(f, a, &out.Suppress, &s.tick.Memory))
		out.Evictions = out.Evict.Evictions
		params := s.Sysctl.Held
		var o sysctl.Output
		s.Sysctl, o = sysctl.Step(s.Sysctl, sysctlInput(f))
		out.Node, out.Problems = o.Plan, o.Problems
		out.Owns = !slices.Equal(params, s.Sysctl.Held)
	}
	out.Tick = s.tick
	out.Dynamic = dynamic(f, &out.Suppress, &s.tick)
	apps := s.Apps
	out.Apps = appsPlan(f, &s, &out.Dynamic)
	out.Owns = out.Owns || held != s.TierHeld || !slices.Equal(apps, s.Apps)
	return s, out
}

// accounts is what the pods use, by tier.
type accounts struct {
	ls, be unit.MilliCPU
	// stall is the worst CPU pressure of a pod that is not best effort and not held down by its own limit.
	stall unit.Measured[unit.Fraction]
	pods  []usage
	// lsApps and beApps are what host applications use.
	lsApps, beApps unit.Measured[unit.MilliCPU]
}

// usage is one pod with what it uses.
type usage struct {
	member *engine.Member
	spec   *pods.Pod // nil while Kubernetes has not told
	class  protocol.QoS
	cpu    unit.Measured[unit.MilliCPU]
	memory unit.Measured[unit.Bytes]
}

// account adds up who uses what. A pod without a sample, which has just come, is in nobody's sum: what it uses counts as
// the system's until the next tick.
func account(f *Facts) *accounts {
	a := &accounts{pods: make([]usage, 0, len(f.Members))}
	for i := range f.Members {
		m := &f.Members[i]
		u := usage{member: m, class: m.Pod.Class(), cpu: f.cpu(sample.OfPod(m.Pod.UID)), memory: f.memory(sample.OfPod(m.Pod.UID))}
		if f.Pods != nil {
			u.spec, _ = f.Pods.Pod(m.Pod.UID)
		}
		if u.class == protocol.QoSBE {
			a.be += u.cpu.V
		} else {
			a.ls += u.cpu.V
			a.stalled(f, m)
		}
		a.pods = append(a.pods, u)
	}
	a.apps(f)
	return a
}

// stalled takes a pod's pressure in, unless its own limit makes it wait.
func (a *accounts) stalled(f *Facts, m *engine.Member) {
	stall := f.last(sample.OfPod(m.Pod.UID), sample.StallCPUSome)
	if !stall.Known() || Throttled(f.Window, m, f.Now-2*f.Interval, f.Now) {
		return
	}
	if part := unit.Fraction(stall.Last / float64(unit.Second)); !a.stall.OK || part > a.stall.V {
		a.stall = unit.Got(part)
	}
}

// Throttled reports whether a limit of a pod, or of one of its containers, made it wait in (from, to]: then nobody else is to
// blame. The kernel counts throttled periods for each limit apart (cpu.stat, Documentation/scheduler/sched-bwc.rst), while
// the pod's pressure has them all.
func Throttled(w Window, m *engine.Member, from, to unit.Micros) bool {
	by := func(s sample.Subject) bool { return w.Query(s, sample.CPUThrottled, from, to+1).Last > 0 }
	return by(sample.OfPod(m.Pod.UID)) || slices.ContainsFunc(m.Containers, func(c *workload.Container) bool { return by(sample.OfContainer(c.ID)) })
}

// last is what was measured of a subject in this tick or the one before.
func (f *Facts) last(s sample.Subject, m sample.Metric) sample.Summary {
	return f.Window.Query(s, m, f.Now-2*f.Interval, f.Now+1)
}

// slowly is the same of what is measured slowly.
func (f *Facts) slowly(s sample.Subject, m sample.Metric) sample.Summary {
	slow := f.Slow
	if slow <= 0 {
		slow = DefaultSlow
	}
	return f.Window.Query(s, m, f.Now-2*max(slow, f.Interval), f.Now+1)
}

// cpu is what a subject uses now; cores are milli-CPUs here.
func (f *Facts) cpu(s sample.Subject) unit.Measured[unit.MilliCPU] {
	return milli(f.last(s, sample.CPUUsage))
}

func (f *Facts) memory(s sample.Subject) unit.Measured[unit.Bytes] {
	q := f.last(s, sample.MemoryUsage)
	if !q.Known() {
		return unit.Measured[unit.Bytes]{}
	}
	return unit.Got(unit.Bytes(q.Last))
}

func milli(q sample.Summary) unit.Measured[unit.MilliCPU] {
	if !q.Known() {
		return unit.Measured[unit.MilliCPU]{}
	}
	return unit.Got(unit.MilliCPU(q.Last*1000 + 0.5))
}

// all are the node's CPUs.
func (f *Facts) all() topo.CPUSet {
	if f.View.Topology == nil {
		return topo.CPUSet{}
	}
	return f.View.Topology.All()
}
