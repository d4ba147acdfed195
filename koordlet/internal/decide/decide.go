// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package decide is the middle of the node agent: from what was measured to what shall be in force, once a tick and
// whenever a pressure trigger calls.
//
// Inputs are Facts: the window, the pods, the View and the node, as they are now; outputs are the dynamic state of the
// handoff, evictions, and a text for each loop. The loops themselves are policy's: one file here puts together what one
// loop looks at. It imports model, policy, engine (for its Members) and the agent's own pods, kube and predict (what the node
// offers); it reads no file and no clock.
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
	"github.com/koord-rt/koord-rt/policy/burst"
	"github.com/koord-rt/koord-rt/policy/evict"
	"github.com/koord-rt/koord-rt/policy/interference"
	"github.com/koord-rt/koord-rt/policy/iocost"
	"github.com/koord-rt/koord-rt/policy/lent"
	"github.com/koord-rt/koord-rt/policy/memqos"
	"github.com/koord-rt/koord-rt/policy/netqos"
	"github.com/koord-rt/koord-rt/policy/oomscore"
	"github.com/koord-rt/koord-rt/policy/suppress"
	"github.com/koord-rt/koord-rt/policy/sysctl"
)

// Window answers what was measured.
type Window interface {
	// Query summarises the samples of (from, to].
	Query(s sample.Subject, m sample.Metric, from, to unit.Micros) sample.Summary
	// Last is the newest of them and its time.
	Last(s sample.Subject, m sample.Metric, from, to unit.Micros) (value float64, at unit.Micros, ok bool)
}

// Facts are all that one step looks at.
type Facts struct {
	Now unit.Micros
	// Urgent: a pressure trigger calls between two ticks, for the pods that are Waiting (UIDs).
	Urgent  bool
	Waiting []string
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
	// KubeletCPUs are those that the kubelet's static CPU manager has given to containers alone, by pod (UID).
	KubeletCPUs map[string]topo.CPUSet
	// Node is nil while it has not been told.
	Node *kube.Node
	// NoPressure: this kernel may not tell the pressure of the best-effort class.
	NoPressure bool
	// EvictFeatures may evict; MemoryPause and CPUPause follow a round.
	EvictFeatures         evict.Features
	MemoryPause, CPUPause unit.Micros
	// Held are the UIDs of pods that are not to be asked for now, and why; also of those that are Leaving and whose turn has not come.
	Held map[string]evict.Held
	// Leaving are the UIDs of pods that were evicted or deleted, since when that is known.
	Leaving map[string]unit.Micros
	// NoReclaim says why the kernel cannot be asked to reclaim from a cgroup; empty when it can. Reclaiming: a round is under
	// way, and the memory loop waits for it. Reclaimed is what the last one has brought, by container id, told once.
	NoReclaim  string
	Reclaiming bool
	Reclaimed  map[string]unit.Bytes
	// Parameters of the node as they stand; one that is missing does not exist on this kernel.
	Parameters map[plan.Knob]int64
	// CostLines are the lines of the disks' cost control as they stand, by the disk's number; a knob that is missing has no file.
	CostLines map[plan.Knob]map[string]string
	// PerCPU is free memory on lists of the CPUs, where MemoryOver has asked for it.
	PerCPU unit.Bytes
	// Link is the uplink where it has just been looked at.
	Link *netqos.Link
	// Tune gives containers room that the policies do not: those that are throttled, stall on memory or near their limit, on a calm node.
	Tune bool
	// Pace of interference detection; the zero value is its default.
	Pace interference.Pace
}

// DefaultSlow is the interval of slow readings where none is told.
const DefaultSlow = 10 * unit.Second

// State is what one step leaves for the next. It survives a restart of the agent as JSON.
type State struct {
	Suppress suppress.State `json:"suppress"`
	Evict    evict.State    `json:"evict"`
	// TierHeld: the quota of the best-effort tier is ours, and TierDir its cgroup.
	TierHeld     bool               `json:"tierHeld,omitempty"`
	TierDir      string             `json:"tierDir,omitempty"`
	Burst        burst.State        `json:"burst"`
	Memory       memqos.State       `json:"memory"`
	OOMScore     oomscore.State     `json:"oomScore"`
	Interference interference.State `json:"interference"`
	// Disks are the suspects that read and write less.
	Disks []DiskUse `json:"disks,omitempty"`
	// Apps are the settings of host applications that are ours.
	Apps []HeldSetting `json:"apps,omitempty"`
	// Owed are values of the tier and of host applications that are to be given back.
	Owed   []Owed       `json:"owed,omitempty"`
	Sysctl sysctl.State `json:"sysctl"`
	IOCost iocost.State `json:"ioCost"`
	// Network are the links that are ours.
	Network netqos.State `json:"network"`
	// Beginners are those with a limit of whose CPU nothing is known.
	Beginners []Beginner `json:"beginners,omitempty"`
	// tick is what the last full step decided: an urgent one, which looks at CPU suppression only, leaves it in force.
	tick Tick
	// memo saves work, and nothing depends on it.
	memo *memo
}

// Tick is what only full steps decide.
type Tick struct {
	Burst        burst.Output
	Memory       memqos.Output
	OOMScore     oomscore.Output
	Interference interference.Output
	Sysctl       sysctl.Output
	IOCost       iocost.Output
	Network      netqos.Output
}

// Outcome is what one step decided.
type Outcome struct {
	// Dynamic is for the handoff.
	Dynamic node.Dynamic
	// Tier is for the cgroup of the best-effort class; empty when it is nobody's business. Apps is for host applications,
	// Node for the node's kernel parameters, its disks' cost control and its links.
	Tier, Apps, Node plan.Plan
	// Back is what was ours of host applications, and what of the tier could not be given back: each returns to what the ledger says
	// stood there before, and to the value here where it tells nothing.
	Back plan.Plan
	// AppProblems are host applications that are left alone, and why.
	AppProblems []string

	Suppress suppress.Output
	Evict    evict.Output
	// Samples are of what was decided, for the window.
	Samples []sample.Sample
	// Tick is what the last full step decided. Reclaims and Events are of this step.
	Tick
	Reclaims []memqos.Reclaim
	Events   []interference.Event
	// Owns: what of the kernel is ours has changed, so the State has to be kept before anything is written.
	Owns bool
}

// Step decides once.
func Step(s State, f *Facts) (State, Outcome) {
	if s.memo == nil {
		s.memo = &memo{}
	}
	s.memo.follow(f.View)
	a := account(f, &s)
	var out Outcome
	if !f.Urgent {
		s.Interference, s.tick.Interference = interference.Step(s.Interference, interferenceInput(f, a, &s))
		out.Events = s.tick.Interference.Events
	}
	s.Interference.Suspects = f.held(&s)
	s.Disks = f.diskUses(&s)
	s.Suppress, out.Suppress = suppress.Step(s.Suppress, suppressInput(f, a, antagonists(s.Interference.Suspects, a)))
	held, dir := s.TierHeld, s.TierDir
	out.Tier = tier(f, &s, &out.Suppress)
	out.Samples = decided(f, a, &out.Suppress)
	if !f.Urgent {
		s.Burst, s.tick.Burst = burst.Step(s.Burst, burstInput(f, a, s.memo))
		if !f.Reclaiming {
			s.Memory, s.tick.Memory = memqos.Step(s.Memory, memoryInput(f, a, hoarders(s.Interference.Suspects), s.memo))
			out.Reclaims = s.tick.Memory.Reclaims
		}
		s.OOMScore, s.tick.OOMScore = oomscore.Step(s.OOMScore, oomScoreInput(f, a, s.tick.Memory.Pressure, s.memo))
		s.Evict, out.Evict = evict.Step(s.Evict, evictInput(f, a, &out.Suppress, &s.tick.Memory))
		params := s.Sysctl.Held
		s.Sysctl, s.tick.Sysctl = sysctl.Step(s.Sysctl, sysctlInput(f))
		out.Node = s.tick.Sysctl.Plan
		out.Owns = !lent.Same(params, s.Sysctl.Held)
		ioCost(f, &s, &out)
		network(f, &s, a, &out)
	}
	out.Tick = s.tick
	out.Dynamic = dynamic(f, &s, &out.Suppress)
	apps := s.Apps
	appsPlan(f, &s, &out)
	giveBackAgain(f, &s, &out)
	out.Owns = out.Owns || held != s.TierHeld || dir != s.TierDir || !slices.Equal(apps, s.Apps)
	return s, out
}

// accounts is what the pods use, by tier.
type accounts struct {
	ls, be unit.MilliCPU
	// below is what pods and host applications in the cgroup of Kubernetes' BestEffort class use, whatever their class is.
	below unit.MilliCPU
	// stalls are the CPU pressures of the pods that are not best effort, without what their own limits make of them.
	stalls []suppress.Stall
	pods   []usage
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
	// again: it is in the list already, with another sandbox of the same pod: what it uses is measured by the pod and counts once.
	again bool
}

// account adds up who uses what. A pod without a sample, which has just come, is in nobody's sum.
func account(f *Facts, s *State) *accounts {
	a := &accounts{pods: make([]usage, 0, len(f.Members)), stalls: make([]suppress.Stall, 0, len(f.Members))}
	for i := range f.Members {
		m := &f.Members[i]
		u := usage{member: m, class: m.Pod.Class(), cpu: f.cpu(sample.OfPod(m.Pod.UID)), memory: f.memory(sample.OfPod(m.Pod.UID))}
		if f.Pods != nil {
			u.spec, _ = f.Pods.Pod(m.Pod.UID)
		}
		u.again = i > 0 && f.Members[i-1].Pod.UID == m.Pod.UID
		switch {
		case u.again:
		case u.class == protocol.QoSBE:
			a.be += u.cpu.V
		default:
			a.ls += u.cpu.V
			a.stalled(f, s, m)
		}
		if m.Pod.KubeQoS == protocol.KubeBestEffort && !u.again {
			a.below += u.cpu.V
		}
		a.pods = append(a.pods, u)
	}
	a.apps(f)
	return a
}

// seen is one sample, or none.
type seen struct {
	Last  float64
	To    unit.Micros
	known bool
}

// Known reports whether there is one.
func (s seen) Known() bool { return s.known }

// newest is the newest sample of (from, to].
func (f *Facts) newest(s sample.Subject, m sample.Metric, from, to unit.Micros) seen {
	value, at, ok := f.Window.Last(s, m, from, to)
	return seen{value, at, ok}
}

// last is what was measured of a subject in this tick or the one before.
func (f *Facts) last(s sample.Subject, m sample.Metric) seen {
	return f.newest(s, m, f.Now-2*f.Interval, f.Now+1)
}

// slowly is the same of what is measured slowly.
func (f *Facts) slowly(s sample.Subject, m sample.Metric) seen {
	slow := f.Slow
	if slow <= 0 {
		slow = DefaultSlow
	}
	return f.newest(s, m, f.Now-2*max(slow, f.Interval), f.Now+1)
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

func milli(q seen) unit.Measured[unit.MilliCPU] {
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
