// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
	"github.com/koord-rt/koord-rt/policy/figure"
	"github.com/koord-rt/koord-rt/policy/memqos"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// dangerPercent of the memory: with less available the kernel kills before an eviction would have helped.
const dangerPercent = unit.Percent(3)

// evictInput is what evictions look at.
func evictInput(f *Facts, a *accounts, held *suppress.Output, memory *memqos.Output) evict.Input {
	in := evict.Input{
		Now: f.Now, Strategy: *f.View.Strategy.ResourceUsedThresholdWithBE, Features: f.EvictFeatures,
		MemoryPause: f.MemoryPause, CPUPause: f.CPUPause,
		Memory: evict.Memory{Capacity: f.View.MemCapacity, Used: f.memory(sample.OfNode()), Reclaiming: memory.Reclaiming},
		CPU:    evictCPU(f, a, held),
	}
	if f.Node != nil {
		in.Memory.BatchAllocatable, in.Memory.MidAllocatable = offered(f.Node.Allocatable.BatchMemory), offered(f.Node.Allocatable.MidMemory)
		in.CPU.BatchAllocatable, in.CPU.MidAllocatable = offered(f.Node.Allocatable.BatchCPU), offered(f.Node.Allocatable.MidCPU)
	}
	if free := in.Memory.Capacity - in.Memory.Used.V; in.Memory.Used.OK && in.Memory.Capacity > 0 && free < in.Memory.Capacity/100*unit.Bytes(dangerPercent) {
		in.Danger = figure.Bytes(free) + " of memory are available"
	}
	for i := range a.pods {
		if u := &a.pods[i]; u.spec != nil && !u.spec.Finished() {
			in.Pods = append(in.Pods, evictPod(f, u))
		}
	}
	return in
}

func offered[T ~int64](v T) unit.Measured[T] {
	if v <= 0 {
		return unit.Measured[T]{}
	}
	return unit.Got(v)
}

// evictCPU describes the node and the best-effort tier over the window of the strategy.
func evictCPU(f *Facts, a *accounts, held *suppress.Output) evict.CPU {
	window := unit.Minute
	if s := f.View.Strategy.ResourceUsedThresholdWithBE.CPUEvictTimeWindowSeconds; s != nil && *s > 0 {
		window = unit.Micros(*s) * unit.Second
	}
	from := f.Now - window
	used := f.Window.Query(sample.OfNode(), sample.CPUUsage, from, f.Now+1)
	tier := f.Window.Query(sample.OfQoS(protocol.QoSBE), sample.CPUUsage, from, f.Now+1)
	out := evict.CPU{
		Capacity: unit.MilliCPU(f.all().Len() * 1000),
		Covered:  unit.Micros(tier.Covered * float64(window)), NoPressure: f.NoPressure,
	}
	if used.Known() {
		out.Used = unit.Got(unit.MilliCPU(used.Avg*1000 + 0.5))
	}
	request, limit := unit.MilliCPU(0), out.Capacity
	for i := range a.pods {
		if u := &a.pods[i]; u.class == protocol.QoSBE && u.spec != nil {
			request += u.spec.Requests().BatchCPU
		}
	}
	switch held.Mode {
	case suppress.CPUSet:
		limit = unit.MilliCPU(held.CPUs.Len() * 1000)
	case suppress.Quota:
		limit = unit.MilliCPU(held.Quota * 1000 / unit.CFSPeriod)
	case suppress.Unknown, suppress.Off:
	}
	if tier.Known() {
		out.Average = evict.Tier{Used: unit.Got(unit.MilliCPU(tier.Avg*1000 + 0.5)), Request: unit.Got(request), Limit: unit.Got(limit)}
		out.Current = evict.Tier{Used: unit.Got(unit.MilliCPU(tier.Last*1000 + 0.5)), Request: unit.Got(request), Limit: unit.Got(limit)}
	}
	if stall := f.Window.Query(sample.OfQoS(protocol.QoSBE), sample.StallCPUSome, from, f.Now+1); stall.Known() {
		out.Pressure = unit.Got(unit.Fraction(stall.Avg / float64(unit.Second)))
	}
	return out
}

// evictPod is one pod as evictions look at it.
func evictPod(f *Facts, u *usage) evict.Pod {
	s := u.spec
	requests := s.Requests()
	p := evict.Pod{
		UID: s.UID, Namespace: s.Namespace, Name: s.Name, QoS: u.class, Band: s.PriorityClass, Priority: s.Priority,
		SubPriority: int64(s.SubPriority), EvictionEnabled: s.Labels[protocol.LabelEvictionEnabled] == "true",
		Unevictable: unevictable(s), Refused: f.Refused[s.UID],
		CPUUsed: u.cpu, CPURequest: requests.AnyCPU(), MemoryUsed: u.memory, MemoryRequest: requests.AnyMemory(),
	}
	if p.Band == protocol.PriorityNone && u.class == protocol.QoSBE {
		p.Band = protocol.PriorityBatch
	}
	if n, err := strconv.ParseInt(s.Annotations[protocol.AnnotationEvictionPriority], 10, 32); err == nil {
		p.EvictionPriority = int32(n)
	}
	policy, given := s.Annotations[protocol.AnnotationEvictionPolicy]
	p.Allowed, _ = evict.DecodePolicy(policy, given)
	p.LeavingSince, p.Leaving = f.Leaving[s.UID]
	p.Leaving = p.Leaving || !s.Deleted.IsZero()
	return p
}

// unevictable says why evicting a pod would not help.
func unevictable(s *pods.Pod) string {
	switch {
	case s.Static:
		return "static pod"
	case s.DaemonSet:
		return "daemon set"
	}
	return ""
}
