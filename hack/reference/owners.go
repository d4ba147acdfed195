// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
)

// owners says which features plan a knob. Its test reads the policies' source and the scenarios' plans.
var owners = map[plan.Knob][]protocol.Feature{
	plan.CPUShares:            {protocol.FeatureBatch, protocol.FeatureIdentity},
	plan.CPUQuota:             {protocol.FeatureBatch, protocol.FeatureCPUSet, protocol.FeatureNormalization, protocol.FeatureBurst},
	plan.CPUPeriod:            {protocol.FeatureBatch, protocol.FeatureNormalization, protocol.FeatureBurst},
	plan.CPUBurst:             {protocol.FeatureBurst},
	plan.CPUIdle:              {protocol.FeatureIdentity},
	plan.CPUBvt:               {protocol.FeatureIdentity},
	plan.SchedPolicy:          {protocol.FeatureIdentity},
	plan.CPUSetCPUs:           {protocol.FeatureCPUSet},
	plan.CPUSetMems:           {protocol.FeatureCPUSet},
	plan.MemoryLimit:          {protocol.FeatureBatch, protocol.FeatureMemory},
	plan.MemoryMin:            {protocol.FeatureMemory},
	plan.MemoryLow:            {protocol.FeatureMemory},
	plan.MemoryHigh:           {protocol.FeatureMemory},
	plan.MemoryOOMGroup:       {protocol.FeatureMemory},
	plan.MemoryWmarkRatio:     {protocol.FeatureMemory},
	plan.MemoryWmarkScale:     {protocol.FeatureMemory},
	plan.MemoryWmarkMinAdj:    {protocol.FeatureMemory},
	plan.MemoryPriority:       {protocol.FeatureMemory},
	plan.MemoryUsePriorityOOM: {protocol.FeatureMemory},
	plan.PageCacheEnable:      {protocol.FeatureMemory},
	plan.PageCacheSize:        {protocol.FeatureMemory},
	plan.PageCacheSync:        {protocol.FeatureMemory},
	plan.IOReadBPS:            {protocol.FeatureBlkIO},
	plan.IOWriteBPS:           {protocol.FeatureBlkIO},
	plan.IOReadIOPS:           {protocol.FeatureBlkIO},
	plan.IOWriteIOPS:          {protocol.FeatureBlkIO},
	plan.IOWeight:             {protocol.FeatureBlkIO},
	plan.IOLatency:            {protocol.FeatureBlkIO},
	plan.RDTClass:             {protocol.FeatureLLC},
	plan.RDTSchemata:          {protocol.FeatureLLC},
	plan.RDTMonGroup:          {protocol.FeatureLLC},
	plan.CoreSchedCookie:      {protocol.FeatureCoreSched},
	plan.OOMScoreAdj:          {protocol.FeatureOOMScore},
	plan.Env:                  {protocol.FeatureDevices},
	plan.Device:               {protocol.FeatureDevices},
	plan.CDIDevice:            {protocol.FeatureDevices},
	plan.Mount:                {protocol.FeatureDevices},
	plan.VMMinFree:            {protocol.FeatureMemory},
	plan.VMWatermarkScale:     {protocol.FeatureMemory},
	plan.IOCostQoS:            {protocol.FeatureBlkIO},
	plan.IOCostModel:          {protocol.FeatureBlkIO},
	plan.NetShape:             {protocol.FeatureNetwork},
}

// knobsOf is the reverse of owners, in plan order.
func knobsOf(f protocol.Feature) []plan.Knob {
	var out []plan.Knob
	for k := plan.KnobNone + 1; k < plan.NumKnobs; k++ {
		if slices.Contains(owners[k], f) {
			out = append(out, k)
		}
	}
	return out
}

// purposes is one sentence for each feature.
var purposes = map[protocol.Feature]string{
	protocol.FeatureBatch:         "CPU weight, CPU quota and memory limit of pods that run on batch-cpu, batch-memory, mid-cpu or mid-memory.",
	protocol.FeatureCPUSet:        "CPUs and memory nodes: the scheduler's for LSE and LSR, share pools for LS, the suppression set for BE, the system's for SYSTEM; LS and BE leave CPUs that a pod owns.",
	protocol.FeatureIdentity:      "Who runs first when CPUs are short: group identity where the kernel has it, else cpu.idle and SCHED_IDLE.",
	protocol.FeatureBurst:         "Unused CPU quota may be used later, up to the burst.",
	protocol.FeatureNormalization: "CPU quota of LS containers divided by the node's performance ratio.",
	protocol.FeatureMemory:        "Memory protection, throttling, group kill and, on vendor kernels, asynchronous reclaim.",
	protocol.FeatureLLC:           "Cache ways and memory bandwidth by QoS class or pod, through resctrl.",
	protocol.FeatureBlkIO:         "Limits, weights and latency targets of disks, and the disks' own cost control.",
	protocol.FeatureOOMScore:      "oom_score_adj of a pod's or a container's processes.",
	protocol.FeatureCoreSched:     "Only processes of one group share a physical core.",
	protocol.FeatureDevices:       "GPUs and RDMA devices that the scheduler allocated, per container.",
	protocol.FeatureNetwork:       "Shares of the uplink's bandwidth by QoS class in both directions, and limits of single pods.",
}
