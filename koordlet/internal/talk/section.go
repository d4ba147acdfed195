// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package talk

import (
	"cmp"
	"math"
	"slices"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Section is the agent's part of its status. Pods come with the most CPU first; status.Write cuts what is too long.
func Section(in *Input) *status.Agent {
	f := in.Facts
	out := &status.Agent{
		Sources: in.sources(), Collectors: f.Collectors, Loops: f.Loops, BE: f.BE, Evictions: f.Evictions, NodeSLO: f.NodeSLO,
		Node: status.Node{
			Name: f.Node, Capacity: status.Amounts{CPU: f.Capacity.CPU, Memory: f.Capacity.Memory},
			Used: in.usage(sample.OfNode()), System: in.usage(sample.OfSystem()), Pressure: in.pressure(sample.OfNode()),
		},
	}
	if a := f.Allocatable; a != nil {
		out.Node.Batch = status.Amounts{CPU: a.BatchCPU, Memory: a.BatchMemory}
		out.Node.Mid = status.Amounts{CPU: a.MidCPU, Memory: a.MidMemory}
	}
	var all amount.Amounts
	for _, c := range in.classes() {
		all = all.Plus(c.requests)
		out.Classes = append(out.Classes, status.Class{
			Name: c.name, Pods: c.pods, Used: in.usage(sample.OfQoS(c.qos)), Requests: amounts(c.requests),
		})
	}
	out.Node.Requests = amounts(all)
	for _, p := range in.pods() {
		out.Pods = append(out.Pods, in.pod(p))
	}
	slices.SortStableFunc(out.Pods, func(a, b status.Pod) int { return cmp.Compare(used(&b), used(&a)) })
	return out
}

// used is a pod's CPU; one that was not measured comes last.
func used(p *status.Pod) unit.MilliCPU {
	if p.Used.CPU == nil {
		return -1
	}
	return *p.Used.CPU
}

func (in *Input) pod(p *pods.Pod) status.Pod {
	s := sample.OfPod(p.UID)
	out := status.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, Class: className(p.Class()), Priority: p.Band().String(),
		Used: in.usage(s), Requests: amounts(p.Requests()), Limits: amounts(p.Limits()), Pressure: in.pressure(s),
	}
	out.Throttled = in.fraction(s, sample.CPUThrottled)
	return out
}

// amounts folds batch and mid resources into the CPUs and bytes that they are.
func amounts(a amount.Amounts) status.Amounts {
	return status.Amounts{CPU: a.AnyCPU(), Memory: a.AnyMemory()}
}

func (in *Input) usage(s sample.Subject) status.Usage {
	var out status.Usage
	if v, ok := in.latest(s, sample.CPUUsage); ok {
		milli := unit.MilliCPU(math.Round(v * 1000))
		out.CPU = &milli
	}
	if v, ok := in.latest(s, sample.MemoryUsage); ok {
		bytes := unit.Bytes(v)
		out.Memory = &bytes
	}
	return out
}

func (in *Input) pressure(s sample.Subject) status.Pressure {
	return status.Pressure{
		CPU: in.fraction(s, sample.PSICPUSome), Memory: in.fraction(s, sample.PSIMemorySome), IO: in.fraction(s, sample.PSIIOSome),
	}
}

// fraction is a ratio, to four digits.
func (in *Input) fraction(s sample.Subject, m sample.Metric) *unit.Fraction {
	v, ok := in.latest(s, m)
	if !ok {
		return nil
	}
	f := unit.Fraction(math.Round(v*1e4) / 1e4)
	return &f
}
