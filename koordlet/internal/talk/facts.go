// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package talk

import (
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/predict"
)

// Limits of what is told, so that no node makes more series than a server of metrics can bear.
const (
	maxPods       = 1024
	maxContainers = 2048
	maxHostApps   = 64
	maxNUMA       = 64
	maxDomains    = 64 // last-level caches, each with maxGroups resctrl groups
	maxGroups     = 16
	// detailFor is how long an eviction has a series of its own, as upstream has it.
	detailFor = 5 * time.Minute
)

// Window is the store of samples; *window.Memory is one.
type Window interface {
	Query(s sample.Subject, m sample.Metric, from, to unit.Micros) sample.Summary
}

// Traffic is one class in one direction, since its shares were set.
type Traffic struct {
	Direction, Class string
	Bytes            uint64
	// Dropped are packets.
	Dropped uint32
}

// Facts is what only the agent's main and its loops know. The agent makes a new value when something in it changes and
// never changes one that it has handed on. What is not known is left out.
type Facts struct {
	// Node is the name of the Node object, Started when the agent did.
	Node    string
	Started time.Time
	// Version of the agent, Runtime ("containerd") and RuntimeVersion; Runtime is also the scheme before container ids.
	Version, Runtime, RuntimeVersion string
	// Capacity of the machine. Allocatable is the Node object's with batch and mid resources; nil while it is not known.
	Capacity    amount.Amounts
	Allocatable *amount.Amounts

	// Sources beside the pods', which Input.PodsState tells; collectors of samples; loops.
	Sources, Collectors []status.Source
	Loops               []status.Loop
	// BE is what suppression decided, Evictions the most recent ones, newest last.
	BE        status.BE
	Evictions []status.Eviction
	// NodeSLO says whose its fields are; nil while that is not known.
	NodeSLO *status.NodeSLO

	HostApps []HostApp
	// NUMA nodes that have samples, and which resctrl groups have them for which cache domains.
	NUMA, CacheDomains []int
	CacheGroups        []string
	// Prediction is the newest one; nil while prediction is off.
	Prediction *predict.Prediction
	// SharePools and BESharePools as they were published last.
	SharePools, BESharePools []node.Pool
	// Scaled are the containers whose quota or burst the loops have changed.
	Scaled []Scaled
	// Victims are the pods that are disturbed now, one for each signal.
	Victims     []Victim
	Generations Generations
	// Network is what the classes have had of the uplink; nil while its bandwidth is not divided.
	Network []Traffic
	// Goroutines of the agent; 0 is not known.
	Goroutines int
}

// HostApp is a host application of the NodeSLO.
type HostApp struct {
	Name     string
	Priority protocol.PriorityClass
	QoS      protocol.QoS
}

// Scaled is what CPU burst has made of one container, by the runtime's id; 0 is nothing.
type Scaled struct {
	Container    string
	Quota, Burst unit.Micros
}

// Victim is one signal of a disturbed pod: its value now and the usual one, in the signal's unit.
type Victim struct {
	Pod, Signal string // Pod is the UID
	Now, Usual  float64
}

// Generations of what was handed to koord-nri and koord-runtime-proxy; 0 is never.
type Generations struct{ Strategy, Dynamic, Pods uint64 }

// Input is everything of one moment.
type Input struct {
	Window Window
	// Pods may be nil; PodsState too.
	Pods      *pods.Snapshot
	PodsState *pods.State
	Facts     *Facts
	// Stats of the window; nil when it tells none.
	Stats *window.Stats
	// Now is the instant on the loops' clock, Wall on the wall clock.
	Now  unit.Micros
	Wall time.Time
	// Fast, Slow and CPI are how old a sample may be to count as the present value: of what is measured each tick, of what
	// is read less often, and of counted instructions and round trip times.
	Fast, Slow, CPI unit.Micros
}

// latest is a subject's present value.
func (in *Input) latest(s sample.Subject, m sample.Metric) (float64, bool) {
	age := in.Fast
	switch {
	case m == sample.Cycles || m == sample.Instructions, m == sample.NetworkRTT: // where looking is dear, pods wait in line
		age = in.CPI
	case m.Slow(s.Kind):
		age = in.Slow
	}
	q := in.Window.Query(s, m, in.Now-age, in.Now)
	return q.Last, q.Known()
}

// pods are those that have not ended, in the snapshot's order.
func (in *Input) pods() []*pods.Pod {
	if in.Pods == nil {
		return nil
	}
	out := make([]*pods.Pod, 0, len(in.Pods.Pods))
	for _, p := range in.Pods.Pods {
		if !p.Finished() {
			out = append(out, p)
		}
	}
	return out
}

// classOrder is the QoS classes in the order of the constants of protocol.QoS, the one without a label last.
var classOrder = [...]protocol.QoS{
	protocol.QoSLSE, protocol.QoSLSR, protocol.QoSLS, protocol.QoSBE, protocol.QoSSystem, protocol.QoSNone,
}

func className(q protocol.QoS) string {
	if q == protocol.QoSNone {
		return "none"
	}
	return q.String()
}

// podsSource tells where the pods come from.
func (in *Input) podsSource() (status.Source, bool) {
	s := in.PodsState
	if s == nil {
		return status.Source{}, false
	}
	out := status.Source{Name: "pods", State: status.StateActive, Reason: s.Degraded(), Since: s.Kubelet.Since}
	if s.Source == pods.FromAPI || !s.Kubelet.Configured {
		out.Since = s.API.Since
	}
	switch {
	case !s.Kubelet.Configured && !s.API.Configured:
		out.State = status.StateOff
	case out.Reason != "":
		out.State = status.StateDegraded
	}
	return out, true
}

// sources are all of them, the pods' first.
func (in *Input) sources() []status.Source {
	out := make([]status.Source, 0, len(in.Facts.Sources)+1)
	if s, ok := in.podsSource(); ok {
		out = append(out, s)
	}
	return append(out, in.Facts.Sources...)
}
