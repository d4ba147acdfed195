// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package topo describes a node's CPUs: threads, cores, sockets, NUMA nodes and last-level caches, and sets of them.
//
// Values are immutable once built. It imports the standard library only; reading /sys is kernel/sys's work.
package topo

import "slices"

// CPU is one hardware thread.
type CPU struct {
	ID     int `json:"id"`
	Core   int `json:"core"`
	Socket int `json:"socket"`
	Node   int `json:"node"`
	// L3 is the cache id of /sys/devices/system/cpu/cpuN/cache/index3/id, the id that resctrl's schemata use; -1 when
	// the CPU has none.
	L3 int `json:"l3"`
}

// Topology is the tree of one node, ordered by CPU id.
type Topology struct {
	CPUs []CPU `json:"cpus"`
	// Nodes are the ids of all online NUMA nodes with memory, for "all mems".
	Nodes CPUSet `json:"nodes"`

	all    CPUSet
	byNode map[int]CPUSet
}

// New builds a topology and its indexes. The slice is copied.
func New(cpus []CPU, memNodes CPUSet) *Topology {
	t := &Topology{CPUs: slices.Clone(cpus), Nodes: memNodes, byNode: map[int]CPUSet{}}
	slices.SortFunc(t.CPUs, func(a, b CPU) int { return a.ID - b.ID })
	for _, c := range t.CPUs {
		t.all.add(c.ID)
		n := t.byNode[c.Node]
		n.add(c.ID)
		t.byNode[c.Node] = n
	}
	return t
}

// All is the set of online CPUs.
func (t *Topology) All() CPUSet { return t.all }

// NodeCPUs is the set of CPUs of one NUMA node; empty when the node is unknown or has none.
func (t *Topology) NodeCPUs(node int) CPUSet { return t.byNode[node] }

// NodesOf is the set of NUMA nodes with memory that the CPUs lie in.
func (t *Topology) NodesOf(s CPUSet) CPUSet {
	var out CPUSet
	for _, c := range t.CPUs {
		if s.Has(c.ID) && t.Nodes.Has(c.Node) && !out.Has(c.Node) {
			out.add(c.Node)
		}
	}
	return out
}

// SMT reports whether any core has more than one thread.
func (t *Topology) SMT() bool {
	seen := map[[2]int]bool{}
	for _, c := range t.CPUs {
		k := [2]int{c.Socket, c.Core}
		if seen[k] {
			return true
		}
		seen[k] = true
	}
	return false
}
