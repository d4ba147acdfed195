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
	// QoS is the label's class or the default of the Kubernetes class.
	QoS protocol.QoS
	// Band is the priority class, derived where no label says it.
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
	// Refused: its disruption budget has just refused an eviction.
	Refused bool
	// Leaving: it was evicted or deleted and is still there. LeavingSince may be 0 for just now.
	Leaving      bool
	LeavingSince unit.Micros

	// What it uses and requests. For pods of the batch and mid bands the requests are batch-cpu, mid-cpu and so on.
	CPUUsed       unit.Measured[unit.MilliCPU]
	CPURequest    unit.MilliCPU
	MemoryUsed    unit.Measured[unit.Bytes]
	MemoryRequest unit.Bytes
}

// be reports whether the pod belongs to the best-effort tier.
func be(p *Pod) bool { return p.QoS == protocol.QoSBE }

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
	case !p.Allowed.Has(f):
		return "its eviction-policy does not name " + f.String()
	case p.Refused && r.budget:
		return "its disruption budget refuses"
	}
	return ""
}
