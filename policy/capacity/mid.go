// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package capacity

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

// MidStrategy is what the cluster has decided for a node.
type MidStrategy struct {
	// Static gives a fixed part of the node, StaticCPU and StaticMemory.
	Static                  bool
	StaticCPU, StaticMemory unit.Percent
	// Unallocated is the part of what no production pod asks for that is lent too.
	Unallocated unit.Percent
	// CPUThreshold and MemoryThreshold bound the result, in percent of the node.
	CPUThreshold, MemoryThreshold unit.Percent
}

// Mid is what mid pods may have together, with those that run already:
//
//	static:  min(capacity × static, capacity × threshold)
//	else:    min(min(prod reclaimable, capacity − node usage) + unallocated × part, capacity × threshold)
//	unallocated = capacity − max(system, reserved) − Σ requests of production pods, at least 0
//
// A report without the node's usage leaves nothing to reclaim.
//
// Example: 100 CPUs of which 30 are used, 15 reclaimable, production asks for 20, part 10 %, threshold 10 %:
// min(min(15, 70) + 80 × 10 %, 100 × 10 %) = min(23, 10) = 10.
func (s *MidStrategy) Mid(n *Node, pods []Pod, report *Report) Amounts {
	most := n.Capacity.Percent(s.CPUThreshold, s.MemoryThreshold)
	if s.Static {
		return n.Capacity.Percent(s.StaticCPU, s.StaticMemory).Min(most)
	}
	var unused Amounts
	if report.NodeOK {
		unused = n.Capacity.Minus(report.Node)
	}
	kept := systemOf(report, protocol.PriorityMid).Max(n.Reserved())
	unallocated := n.Capacity.Minus(kept).Minus(HighOf(pods, report, protocol.PriorityMid).Requested)
	return report.ProdFree.Min(unused).Plus(unallocated.Percent(s.Unallocated, s.Unallocated)).Min(most)
}
