// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package capacity decides what of a node may be lent out: batch resources, which come and go with the load, and mid
// resources, which production pods have asked for and are not expected to use.
//
//	reserved = max(what the kubelet keeps, what the annotation reservation keeps)
//	system   = max(system usage + host applications that go before the class, reserved)
//	batch    = min(policy, capacity × batch threshold), policy one of
//	  usage            = capacity × reclaim − system   − Σ used by pods above batch
//	  request          = capacity × reclaim − reserved − Σ requested by them (memory only)
//	  maxUsageRequest  = capacity × reclaim − system   − Σ max(used, requested) of each
//	mid      = min(min(prod reclaimable, capacity − node usage) + unallocated × mid unallocated, capacity × mid threshold)
//
// Of a node that is not sound a part of it is lent, its weight ([HealthStrategy.Weigh]). Everything is held above zero. One file per calculation has the details and an example, which its test repeats
// (docs: koordinator-cluster.md §4.4). Where this differs from Koordinator 1.8: a pod without a report counts by its request
// under every policy; what a mid pod asks for in mid resources counts as its request; a host application without a class
// counts as production's; and each memory node's zone goes by its number where its name tells one.
//
// Inputs are values that somebody has read from Node, NodeMetric, Pods and the cluster's strategy, outputs amounts with the
// reason where there are none. It imports model/unit, api/protocol, policy/figure and the standard library only; never os, net, log, fmt, time or
// the types of an object.
package capacity

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Node is what a node has. All amounts are 0 or more.
type Node struct {
	// Capacity is the whole node as the kubelet tells it, before amplification.
	Capacity Amounts
	// Kubelet is what the kubelet keeps: capacity − allocatable. Annotation is what its administrator keeps.
	Kubelet, Annotation Amounts
	// Zones are its memory nodes, none where nobody has told of them.
	Zones []Zone
}

// Zone is one memory node.
type Zone struct {
	// ID is the memory node's number.
	ID int
	// Capacity is what pods may have of it.
	Capacity Amounts
}

// Reserved is what no pod gets.
func (n *Node) Reserved() Amounts { return n.Kubelet.Max(n.Annotation) }

// Pod is a pod on the node that has not finished.
type Pod struct {
	// Name is namespace/name.
	Name  string
	Class protocol.PriorityClass
	QoS   protocol.QoS
	// Request is what the scheduler books for it; batch and mid resources count as CPU and memory.
	Request Amounts
	// Zones are the memory nodes that it was given; none, or none that the node has, is all of them.
	Zones []int
}

// Usage is what a report says of a pod.
type Usage struct {
	// Name is namespace/name.
	Name  string
	Class protocol.PriorityClass
	Used  Amounts
}

// Host is what a report says of an application outside of Kubernetes.
type Host struct {
	Class protocol.PriorityClass
	Used  Amounts
}

// Report is what a node has reported of itself.
type Report struct {
	// At is when, as time since any fixed moment.
	At unit.Micros
	// Node is what the whole node uses; not OK where the report does not say.
	Node     Amounts
	NodeOK   bool
	System   Amounts
	Pods     []Usage
	Hosts    []Host
	ProdFree Amounts // what production pods have asked for and are not expected to use
	ProdPeak Amounts // the most that they are expected to use
	PeakOK   bool
	// Evictions are pods that its agent has evicted in the last hour.
	Evictions int64
}

// Sighting is what a reader has noted of a report by its own clock, which no node can set.
type Sighting struct {
	// For is how long the reader has had the report; not Set where it takes no note.
	For unit.Opt
	// Came: it saw the report come. One that was there when it began may be of any age.
	Came bool
}

// had is how old the report is at least.
func (s *Sighting) had() unit.Micros { return unit.Micros(s.For.Or(0)) }

// Above reports whether pods of a class go before those of another: production, and what has no class, before mid before
// batch before free.
func Above(class, other protocol.PriorityClass) bool { return rank(class) < rank(other) }

func rank(class protocol.PriorityClass) int {
	switch class {
	case protocol.PriorityMid:
		return 1
	case protocol.PriorityBatch:
		return 2
	case protocol.PriorityFree:
		return 3
	default:
		return 0
	}
}

// Stale says why a report counts for nothing; "" when it counts. It does as long as it is not older than limit, and not as far in the
// future: a node whose clock is ahead would be lent out long after its agent has ended. Nor does it count when it came longer than limit
// ago, whatever it says: one of the future seems to get younger, and to be of now in the end.
//
// Example: limit 15 min: a report of 15 min ago counts, one of 15 min and a second ago does not. One that says to be of 12:00 counts when it
// has come at 11:50, up to 12:05.
func Stale(r *Report, seen Sighting, now, limit unit.Micros) string {
	switch {
	case r == nil:
		return "the node has not reported"
	case now-r.At > limit && seen.Came && seen.had() <= limit:
		return "the last report came " + age(seen.had()) + " ago and says that it is " + age(now-r.At) + " old, more than " + age(limit) + ": set the node's clock"
	case now-r.At > limit:
		return "the last report is " + age(now-r.At) + " old, more than " + age(limit)
	case r.At-now > limit:
		return "the last report is " + age(r.At-now) + " ahead of the time here, more than " + age(limit) + ": set the node's clock"
	case seen.had() > limit:
		return "the node has not reported for " + age(seen.had()) + ", more than " + age(limit)
	}
	return ""
}
