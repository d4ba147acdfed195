// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package capacity

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Calculation says by what of the pods above batch the node is measured; the strategy's words.
type Calculation string

// Calculations. An unknown word is ByUsage; ByRequest is for memory only, for CPU it is ByUsage.
const (
	ByUsage           Calculation = "usage"
	ByRequest         Calculation = "request"
	ByMaxUsageRequest Calculation = "maxUsageRequest"
)

// BatchStrategy is what the cluster has decided for a node.
type BatchStrategy struct {
	// CPUReclaim and MemoryReclaim are the part of the node that may be used up at all; more than 100 lends what is not there.
	CPUReclaim, MemoryReclaim unit.Percent
	CPU, Memory               Calculation
	// CPUThreshold and MemoryThreshold bound the result, in percent of the node.
	CPUThreshold, MemoryThreshold unit.Opt
}

// Batch is what batch pods may have together, with those that run already:
//
//	min(capacity × reclaim − system − Σ used (or requested, or the larger) of pods above batch, capacity × threshold), at least 0
//
// Example: 100 CPUs, 65 %, system 7, pods above batch use 33: 65 − 7 − 33 = 25. 120 GB, 65 %, system 12 GB, 33 GB: 33 GB; by
// request (80 %, nothing reserved, 60 GB asked for): 96 − 60 = 36 GB.
func (s *BatchStrategy) Batch(n *Node, pods []Pod, report *Report) Amounts {
	return s.batch(n.Capacity, n.Reserved(), systemOf(report, protocol.PriorityBatch), HighOf(pods, report, protocol.PriorityBatch))
}

// BatchZones is the same for each zone, in the order of the node's. What belongs to no zone is spread evenly: system usage,
// what is reserved, and pods that were given no memory node.
//
// Example: zones of 50 CPUs, 65 %, system 7, a pod that uses 5 in zone 0, others use 28: 32.5 − 3.5 − (14 + 5) = 10 and
// 32.5 − 3.5 − 14 = 15.
func (s *BatchStrategy) BatchZones(n *Node, pods []Pod, report *Report) []Amounts {
	count := len(n.Zones)
	system, reserved := systemOf(report, protocol.PriorityBatch).split(count), n.Reserved().split(count)
	out := make([]Amounts, count)
	for i, high := range zonesOf(pods, report, protocol.PriorityBatch, n.Zones) {
		out[i] = s.batch(n.Zones[i].Capacity, reserved, system, high)
	}
	return out
}

func (s *BatchStrategy) batch(capacity, reserved, system Amounts, high High) Amounts {
	ours := capacity.Percent(s.CPUReclaim, s.MemoryReclaim)
	system = system.Max(reserved)
	byUsage := ours.Minus(system).Minus(high.Used)
	byRequest := ours.Minus(reserved).Minus(high.Requested)
	byLarger := ours.Minus(system).Minus(high.Larger)
	out := byUsage
	if s.CPU == ByMaxUsageRequest {
		out.CPU = byLarger.CPU
	}
	switch s.Memory {
	case ByRequest:
		out.Memory = byRequest.Memory
	case ByMaxUsageRequest:
		out.Memory = byLarger.Memory
	}
	if s.CPUThreshold.Set {
		out.CPU = min(out.CPU, unit.Percent(s.CPUThreshold.V).Milli(capacity.CPU))
	}
	if s.MemoryThreshold.Set {
		out.Memory = min(out.Memory, unit.Percent(s.MemoryThreshold.V).Of(capacity.Memory))
	}
	return out
}

// LessThirdParty is what Kubernetes may lend where another system (YARN) books batch resources on the same node.
//
// Example: 25 CPUs of batch, 30 booked by others: 0, not −5.
func LessThirdParty(batch Amounts, booked []Amounts) Amounts {
	for _, b := range booked {
		batch = batch.Minus(b)
	}
	return batch
}
