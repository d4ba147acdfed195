// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Pod is one pod of the node as far as evictions look at it.
type Pod struct {
	UID, Namespace, Name string
	// BE: the pod belongs to the best-effort tier, see [BestEffort].
	BE bool
	// Band is the priority class, with its default where neither label nor priority says it.
	Band protocol.PriorityClass
	// Priority is spec.priority, SubPriority the label koordinator.sh/priority, EvictionPriority the annotation
	// koordinator.sh/eviction-priority; all 0 without.
	Priority         int32
	SubPriority      int64
	EvictionPriority int32
	// EvictionEnabled is the label koordinator.sh/eviction-enabled: all features but the two of the BE tier ask for it.
	EvictionEnabled bool
	// Allowed are the features of the eviction-policy annotation, see DecodePolicy.
	Allowed Features
	// Unevictable says why the pod is never a victim ("static pod", "daemon set"); empty when it may be.
	Unevictable string
	// Held says why it is not asked for now; ByTurn and ByDanger only of one that is Leaving.
	Held Held
	// Leaving: it was evicted or deleted and is still there. LeavingSince is since when that is known; 0 for just now.
	Leaving      bool
	LeavingSince unit.Micros

	// What it uses, and requests of what the node lends: mid-cpu and mid-memory in the mid band, batch-cpu and batch-memory in all others.
	CPUUsed       unit.Measured[unit.MilliCPU]
	CPURequest    unit.MilliCPU
	MemoryUsed    unit.Measured[unit.Bytes]
	MemoryRequest unit.Bytes
}

// Held is why a pod is not asked for now.
type Held uint8

// The reasons. Budgets do not hold in danger; what failed would fail again, so the next candidate is taken then, too.
const (
	NotHeld Held = iota
	// ByBudget: its disruption budget has just refused an eviction.
	ByBudget
	// ByFailure: its last eviction has failed, and the time to try again has not come.
	ByFailure
	// ByTurn: an earlier step has chosen it, and others are asked for first. It counts as leaving.
	ByTurn
	// ByDanger: a step in danger has chosen it, and it is asked for next.
	ByDanger
)

// highest is the top of Koordinator's priority bands. What is above them is more important than any of them: system
// components, and classes that people made for key tasks.
const highest = 9999

// Above reports that a pod's priority is above Koordinator's bands: it is never evicted from the node.
func Above(priority int32) bool { return priority > highest }

// BestEffort reports whether a pod belongs to the best-effort tier, which is evicted without being asked: by its label, as
// upstream has it (GetPodQoSClassRaw), or where it has none and requests nothing by a priority class that is lent
// resources, batch or free, told by label or priority. A pod of Kubernetes' BestEffort class with no such priority does not:
// nobody has said that it may go. class and band are without defaults.
func BestEffort(class protocol.QoS, kube protocol.KubeQoS, band protocol.PriorityClass) bool {
	if class != protocol.QoSNone {
		return class == protocol.QoSBE
	}
	return kube == protocol.KubeBestEffort && (band == protocol.PriorityBatch || band == protocol.PriorityFree)
}

// anyone is for where every pod's end helps.
func anyone(*Pod) bool { return true }

// be reports whether the features of the best-effort tier may take a pod.
func be(p *Pod) bool { return p.BE }

// below returns the test for features that go by priority: at most the threshold, and the owner agrees by label.
func below(threshold int32) func(*Pod) bool {
	return func(p *Pod) bool { return p.Priority <= threshold && p.EvictionEnabled }
}

// before orders victims: eviction priority, priority, sub-priority, each the lowest first.
func before(a, b *Pod) int {
	return cmp.Or(
		cmp.Compare(a.EvictionPriority, b.EvictionPriority), cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.SubPriority, b.SubPriority))
}

// appeal is why a pod may not be evicted by a feature now, empty when it may.
func (r *round) appeal(p *Pod, f Feature) string {
	switch {
	case p.Unevictable != "":
		return p.Unevictable
	case Above(p.Priority):
		return "its priority is above all classes"
	case (f == BEMemoryEvict || f == BECPUEvict) && p.Band == protocol.PriorityProd:
		return "its priority class is " + p.Band.String()
	case !p.Allowed.Has(f):
		return "its eviction-policy does not name " + f.String()
	case p.Held == ByBudget && r.budget:
		return "its disruption budget refuses"
	case p.Held == ByFailure:
		return "its last eviction has failed"
	}
	return ""
}
