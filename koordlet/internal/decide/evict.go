// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
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

// MemoryOver reports whether the node uses more than evictions bear, before free memory on lists of the CPUs is taken off: a step would look
// at that then.
func MemoryOver(f *Facts) bool {
	t := f.View.Strategy.Threshold()
	if t.Enable == nil || !*t.Enable || t.MemoryEvictThresholdPercent == nil {
		return false
	}
	used, _ := f.unlisted()
	return used.OK && used.V > unit.Percent(*t.MemoryEvictThresholdPercent).Of(f.View.MemCapacity)
}

// unlisted is what the node uses, with what is free on lists of the CPUs, and the lists: samples of the use are without them as they
// were some seconds ago.
func (f *Facts) unlisted() (used unit.Measured[unit.Bytes], lists unit.Bytes) {
	used = f.memory(sample.OfNode())
	if seen := f.slowly(sample.OfNode(), sample.MemoryFreeLists); seen.Known() {
		lists = unit.Bytes(seen.Last)
		used.V += lists
	}
	return used, lists
}

// nodeMemory is what evictions go by: the lists as they are now where it matters, as everybody else knows them where not.
func nodeMemory(f *Facts, reclaiming bool) evict.Memory {
	used, lists := f.unlisted()
	if MemoryOver(f) {
		lists = f.PerCPU
	}
	return evict.Memory{Capacity: f.View.MemCapacity, Used: used, PerCPU: lists, Reclaiming: reclaiming}
}

// evictInput is what evictions look at; next to nothing while the strategy does not ask for any.
func evictInput(f *Facts, a *accounts, held *suppress.Output, memory *memqos.Output) evict.Input {
	in := evict.Input{
		Now: f.Now, Strategy: f.View.Strategy.Threshold(), Features: f.EvictFeatures,
		MemoryPause: f.MemoryPause, CPUPause: f.CPUPause,
		Memory: nodeMemory(f, memory.Reclaiming),
	}
	if t := &in.Strategy; t.Enable == nil || !*t.Enable {
		return in
	}
	in.CPU = evictCPU(f, a, held)
	if f.Node != nil {
		in.Memory.BatchAllocatable, in.Memory.MidAllocatable = offered(f.Node.Allocatable.BatchMemory), offered(f.Node.Allocatable.MidMemory)
		in.CPU.BatchAllocatable, in.CPU.MidAllocatable = offered(f.Node.Allocatable.BatchCPU), offered(f.Node.Allocatable.MidCPU)
	}
	if free := in.Memory.Capacity - in.Memory.InUse().V; in.Memory.Used.OK && in.Memory.Capacity > 0 && free < in.Memory.Capacity/100*unit.Bytes(dangerPercent) {
		in.Danger = figure.Bytes(free) + " of memory are available"
	}
	average := goesByCPU(&in)
	in.Pods = make([]evict.Pod, 0, len(a.pods))
	for i := range a.pods {
		u := &a.pods[i]
		if u.again || u.spec == nil || u.spec.Finished() {
			continue
		}
		p := evictPod(f, u)
		if average {
			p.CPUUsed = f.mean(sample.OfPod(p.UID))
		}
		in.Pods = append(in.Pods, p)
	}
	return in
}

// goesByCPU reports whether some feature looks at the CPU that pods use; their averages cost a look at the whole window.
func goesByCPU(in *evict.Input) bool {
	act := in.Features & evict.Wanted(&in.Strategy)
	return act.Has(evict.CPUEvict) || act.Has(evict.BECPUEvict)
}

func offered[T ~int64](v T) unit.Measured[T] {
	if v <= 0 {
		return unit.Measured[T]{}
	}
	return unit.Got(v)
}

// evictWindow is the window of the strategy.
func (f *Facts) evictWindow() unit.Micros {
	if s := f.View.Strategy.Threshold().CPUEvictTimeWindowSeconds; s != nil && *s > 0 {
		return unit.Micros(*s) * unit.Second
	}
	return unit.Minute
}

// over is what was measured in the window of the strategy.
func (f *Facts) over(s sample.Subject, m sample.Metric) sample.Summary {
	return f.Window.Query(s, m, f.Now-f.evictWindow(), f.Now+1)
}

// mean is the CPU that a subject has used in it on average.
func (f *Facts) mean(s sample.Subject) unit.Measured[unit.MilliCPU] {
	return meanOf(f.over(s, sample.CPUUsage))
}

func meanOf(s sample.Summary) unit.Measured[unit.MilliCPU] {
	if !s.Known() {
		return unit.Measured[unit.MilliCPU]{}
	}
	return unit.Got(unit.MilliCPU(s.Avg*1000 + 0.5))
}

func lastOf(s sample.Summary) unit.Measured[unit.MilliCPU] {
	if !s.Known() {
		return unit.Measured[unit.MilliCPU]{}
	}
	return unit.Got(unit.MilliCPU(s.Last*1000 + 0.5))
}

// evictCPU describes the node and the best-effort tier over the window of the strategy. The pressure is that of the cgroup of
// Kubernetes' BestEffort class: where a kernel that tells none of others has it all the same (Anolis), it counts.
func evictCPU(f *Facts, a *accounts, held *suppress.Output) evict.CPU {
	be := sample.OfQoS(protocol.QoSBE)
	tier := f.over(be, sample.CPUUsage)
	whole := f.over(sample.OfNode(), sample.CPUUsage)
	out := evict.CPU{
		Capacity: unit.MilliCPU(f.all().Len() * 1000), Used: meanOf(whole), UsedNow: lastOf(whole),
		Covered: unit.Micros(tier.Covered * float64(f.evictWindow())), NoPressure: f.NoPressure,
	}
	if tier.Known() {
		limit, request := f.tierLimit(held), tierRequest(a)
		out.Average = evict.Tier{Used: meanOf(tier), Request: meanOf(f.over(be, sample.CPURequest)), Limit: meanOf(f.over(be, sample.CPULimit))}
		out.Current = evict.Tier{Used: lastOf(tier), Request: unit.Got(request), Limit: unit.Got(limit)}
	}
	if stall := f.over(be, sample.StallCPUSome); stall.Known() {
		part := func(micros float64) unit.Measured[unit.Fraction] {
			return unit.Got(unit.Fraction(micros / float64(unit.Second)))
		}
		out.Pressure, out.PressureNow, out.NoPressure = part(stall.Avg), part(stall.Last), false
	}
	return out
}

// tierLimit is what suppression leaves the best-effort tier.
func (f *Facts) tierLimit(held *suppress.Output) unit.MilliCPU {
	switch held.Mode {
	case suppress.CPUSet:
		return unit.MilliCPU(held.CPUs.Len() * 1000)
	case suppress.Quota:
		return unit.MilliCPU(held.Quota * 1000 / unit.CFSPeriod)
	case suppress.Unknown, suppress.Off:
	}
	return unit.MilliCPU(f.all().Len() * 1000)
}

// tierRequest is the batch-cpu that the pods of the best-effort tier request, without those that have finished: their sandboxes may stand for
// long, and nobody would be better off for their sake.
func tierRequest(a *accounts) (sum unit.MilliCPU) {
	for i := range a.pods {
		if u := &a.pods[i]; u.class == protocol.QoSBE && u.spec != nil && !u.again && !u.spec.Finished() {
			sum += u.spec.Requests().BatchCPU
		}
	}
	return sum
}

// decided are the samples of what the step itself has decided: the limit of the best-effort tier and what it requests, whose
// averages evictions look at. Only the decision knows the limit: a cpuset is written to containers, not to their class.
func decided(f *Facts, a *accounts, held *suppress.Output) []sample.Sample {
	if held.Mode == suppress.Unknown {
		return nil // what is in force is not known
	}
	be := sample.OfQoS(protocol.QoSBE)
	of := func(m sample.Metric, v unit.MilliCPU) sample.Sample {
		return sample.Sample{Subject: be, Metric: m, Value: max(float64(v), 0) / 1000, At: f.Now}
	}
	return []sample.Sample{of(sample.CPULimit, f.tierLimit(held)), of(sample.CPURequest, tierRequest(a))}
}

// evictPod is one pod as evictions look at it. What it uses is the last second's.
func evictPod(f *Facts, u *usage) evict.Pod {
	s := u.spec
	p := evict.Pod{
		UID: s.UID, Namespace: s.Namespace, Name: s.Name, BE: evict.BestEffort(s.QoS, s.Kube, s.PriorityClass), Band: s.PriorityClass, Priority: s.Priority,
		SubPriority: int64(s.SubPriority), EvictionPriority: s.EvictionPriority, EvictionEnabled: s.Labels[protocol.LabelEvictionEnabled] == "true",
		Unevictable: unevictable(s), Held: f.Held[s.UID],
		CPUUsed: u.cpu, MemoryUsed: u.memory,
	}
	if p.Band == protocol.PriorityNone && s.Class() == protocol.QoSBE {
		p.Band = protocol.PriorityBatch
	}
	p.CPURequest, p.MemoryRequest = borrowed(s, p.Band)
	policy, given := s.Annotations[protocol.AnnotationEvictionPolicy]
	p.Allowed, _ = evict.DecodePolicy(policy, given) // pods.Decode tells of one that cannot be read
	p.LeavingSince, p.Leaving = f.Leaving[s.UID]
	p.Leaving = p.Leaving || !s.Deleted.IsZero()
	return p
}

// borrowed is what a pod requests of what the node lends to its band: mid resources in the mid band, batch ones in all others. What it requests of
// the node's own CPU and memory takes nothing from that.
func borrowed(s *pods.Pod, band protocol.PriorityClass) (unit.MilliCPU, unit.Bytes) {
	r := s.Requests()
	if band == protocol.PriorityMid {
		return r.MidCPU, r.MidMemory
	}
	return r.BatchCPU, r.BatchMemory
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
