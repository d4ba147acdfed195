// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package status

import (
	"slices"
	"time"
	"unicode/utf8"

	"github.com/koord-rt/koord-rt/model/unit"
)

// Limits of the node agent's section.
const (
	// MaxSources also bounds collectors.
	MaxSources   = 32
	MaxLoops     = 32
	MaxPods      = 512
	MaxEvictions = 32
	MaxOverrides = 64
	// maxOwners bounds those of one field.
	maxOwners = 4
	// maxText bounds each reason, decision and name of a field or its owner, in bytes.
	maxText = 512
)

// States of sources, collectors and loops.
const (
	StateActive   = "active"
	StateDegraded = "degraded"
	// StateObserve: a loop decides and records, and writes nothing.
	StateObserve = "observe"
	// StateUnsupported: this kernel or machine cannot.
	StateUnsupported = "unsupported"
	StateOff         = "off"
)

// NotAskedYet is the reason of a source that has had no time to be asked: its writer has just started, and there is nothing to mend.
const NotAskedYet = "not asked yet"

// NotKnown begins the reason of a source that was asked and has not told, followed by why not: neither yes nor no.
const NotKnown = "not known: "

// Agent is what the node agent adds to its status: the node as it was when the file was written. A figure that is nil was
// not measured. Units: milli-CPUs, bytes, ratios 0..1.
type Agent struct {
	// Sources are whom the agent learns from (kubelet, API server, runtime …), Collectors what it measures.
	Sources    []Source `json:"sources,omitempty"`
	Collectors []Source `json:"collectors,omitempty"`
	Loops      []Loop   `json:"loops,omitempty"`
	Node       Node     `json:"node"`
	// Classes are LSE, LSR, LS, BE, SYSTEM and none, in this order.
	Classes []Class `json:"classes,omitempty"`
	// Pods that have not ended, the one with most CPU first; LeftOut is how many more there are.
	Pods        []Pod `json:"pods,omitempty"`
	PodsLeftOut int   `json:"podsLeftOut,omitempty"`
	BE          BE    `json:"be,omitzero"`
	// Evictions are the most recent ones, newest last.
	Evictions []Eviction `json:"evictions,omitempty"`
	// NodeSLO says whose the fields of the node's strategy are; nil while that is not known.
	NodeSLO *NodeSLO `json:"nodeSLO,omitempty"`
}

// NodeSLO is the object of the node's strategy.
type NodeSLO struct {
	Generation int64 `json:"generation"`
	// Overrides are the fields that others than koord-manager have written, sorted by name; LeftOut is how many more there are.
	Overrides []Override `json:"overrides,omitempty"`
	LeftOut   int        `json:"overridesLeftOut,omitempty"`
}

// Override is one field. Value is empty for one that is no number, word or truth value.
type Override struct {
	Field string  `json:"field"`
	Value string  `json:"value,omitempty"`
	By    []Owner `json:"by"`
}

// Owner is a field manager, and when it last changed its fields.
type Owner struct {
	Manager string    `json:"manager"`
	Time    time.Time `json:"t,omitzero"`
}

// Source is one thing that may be missing.
type Source struct {
	Name string `json:"name"`
	// State is one of the constants; Reason says why it is not active, or how it is degraded.
	State  string    `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// Loop is one loop with its last decision in words.
type Loop struct {
	Name     string    `json:"name"`
	State    string    `json:"state,omitempty"`
	Decision string    `json:"decision,omitempty"`
	At       time.Time `json:"at,omitzero"`
	// Err is why the last round did not work, empty when it did.
	Err string `json:"err,omitempty"`
}

// Usage is CPU and memory at one moment.
type Usage struct {
	CPU    *unit.MilliCPU `json:"cpuMilli,omitempty"`
	Memory *unit.Bytes    `json:"memoryBytes,omitempty"`
}

// Amounts are requests, limits or capacity; 0 is none. Batch and mid resources count as the CPUs and bytes they are.
type Amounts struct {
	CPU    unit.MilliCPU `json:"cpuMilli,omitempty"`
	Memory unit.Bytes    `json:"memoryBytes,omitempty"`
}

// Pressure is the share of the last 10 s in which some task waited (PSI, "some avg10").
type Pressure struct {
	CPU    *unit.Fraction `json:"cpu,omitempty"`
	Memory *unit.Fraction `json:"memory,omitempty"`
	IO     *unit.Fraction `json:"io,omitempty"`
}

// Node is the whole machine.
type Node struct {
	Name     string  `json:"name,omitempty"`
	Capacity Amounts `json:"capacity"`
	// Batch and Mid are what the node offers as batch and mid resources.
	Batch Amounts `json:"batch,omitzero"`
	Mid   Amounts `json:"mid,omitzero"`
	Used  Usage   `json:"used"`
	// System is what belongs to neither pods nor host applications.
	System   Usage    `json:"system"`
	Requests Amounts  `json:"requests"`
	Pressure Pressure `json:"pressure"`
}

// Class is the sum of the pods of one QoS class.
type Class struct {
	Name     string  `json:"name"`
	Pods     int     `json:"pods"`
	Used     Usage   `json:"used"`
	Requests Amounts `json:"requests"`
}

// Pod is one pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Class     string `json:"class"`
	// Priority is the priority class, koord-prod …
	Priority string  `json:"priority,omitempty"`
	Used     Usage   `json:"used"`
	Requests Amounts `json:"requests"`
	Limits   Amounts `json:"limits"`
	// Throttled is the share of periods in which the CPU quota ran out; nil without a quota.
	Throttled *unit.Fraction `json:"throttled,omitempty"`
	Pressure  Pressure       `json:"pressure"`
}

// BE is what holds the best-effort tier down.
type BE struct {
	// Mode is off, cpuset, cfsQuota or unknown.
	Mode string `json:"mode,omitempty"`
	// CPUs is the set as the kernel writes it, Quota µs per 100 ms; Limit what either of them comes to.
	CPUs  string         `json:"cpus,omitempty"`
	Quota unit.Micros    `json:"quotaMicros,omitempty"`
	Limit *unit.MilliCPU `json:"limitMilli,omitempty"`
	// Allowance is what the formula gives, possibly negative.
	Allowance *unit.MilliCPU `json:"allowanceMilli,omitempty"`
	// Reason is the decision in words, Since when it was taken.
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// Eviction is one pod that was, or was to be, evicted.
type Eviction struct {
	Time      time.Time `json:"t"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       string    `json:"uid,omitempty"`
	Class     string    `json:"class,omitempty"`
	// Feature is the reason's name as upstream's feature gates have it; Reason the decision in words.
	Feature string `json:"feature"`
	Reason  string `json:"reason,omitempty"`
	// Outcome is evicted, refused, failed or observed.
	Outcome string `json:"outcome"`
}

// Outcomes of an eviction.
const (
	OutcomeEvicted = "evicted"
	// OutcomeRefused: a disruption budget did not allow it.
	OutcomeRefused  = "refused"
	OutcomeFailed   = "failed"
	OutcomeObserved = "observed"
)

// within is the section cut to the limits; the caller's stays as it is.
func (a *Agent) within() *Agent {
	out := *a
	out.Sources, out.Collectors = sources(a.Sources), sources(a.Collectors)
	out.Loops = slices.Clone(a.Loops[:min(len(a.Loops), MaxLoops)])
	for i := range out.Loops {
		l := &out.Loops[i]
		l.Decision, l.Err = short(l.Decision), short(l.Err)
	}
	if more := len(a.Pods) - MaxPods; more > 0 {
		out.Pods, out.PodsLeftOut = a.Pods[:MaxPods], a.PodsLeftOut+more
	}
	out.Evictions = slices.Clone(a.Evictions[max(len(a.Evictions)-MaxEvictions, 0):])
	for i := range out.Evictions {
		out.Evictions[i].Reason = short(out.Evictions[i].Reason)
	}
	out.BE.Reason = short(a.BE.Reason)
	out.NodeSLO = a.NodeSLO.within()
	return &out
}

func (n *NodeSLO) within() *NodeSLO {
	if n == nil {
		return nil
	}
	out := *n
	out.Overrides = slices.Clone(n.Overrides[:min(len(n.Overrides), MaxOverrides)])
	out.LeftOut += len(n.Overrides) - len(out.Overrides)
	for i := range out.Overrides {
		o := &out.Overrides[i]
		o.Field, o.Value = short(o.Field), short(o.Value)
		o.By = slices.Clone(o.By[:min(len(o.By), maxOwners)])
		for j := range o.By {
			o.By[j].Manager = short(o.By[j].Manager)
		}
	}
	return &out
}

func sources(list []Source) []Source {
	out := slices.Clone(list[:min(len(list), MaxSources)])
	for i := range out {
		out[i].Reason = short(out[i].Reason)
	}
	return out
}

// short cuts a text without splitting a character.
func short(s string) string {
	if len(s) <= maxText {
		return s
	}
	const mark = "…"
	n := maxText - len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}
