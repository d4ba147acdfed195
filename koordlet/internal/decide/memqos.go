// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/draft"
	"github.com/koord-rt/koord-rt/policy/memqos"
)

// memoryInput is what the memory loop looks at: containers whose pod lets memory QoS write, where there is something to do.
func memoryInput(f *Facts, a *accounts, antagonists []memqos.Antagonist, m *memo) memqos.Input {
	in := memqos.Input{
		Now: f.Now, Strategy: f.View.Strategy.Threshold(), Tune: f.Tune, Capacity: f.View.MemCapacity, Used: f.memory(sample.OfNode()),
		Antagonists: antagonists, CanReclaim: f.NoReclaim == "", CanHigh: f.View.Kernel.Has(plan.MemoryHigh) && !f.View.Ceded.Has(plan.MemoryHigh),
	}
	if f.View.Mode(protocol.FeatureMemory) != node.Active || !in.CanReclaim && !in.CanHigh {
		return in
	}
	in.Containers = make([]memqos.Container, 0, m.marked)
	for i := range a.pods {
		u := &a.pods[i]
		if !f.writes(u, protocol.FeatureMemory) {
			continue
		}
		if _, marked := draft.MemoryOf(f.View, u.member.Pod); !marked && !in.Tune && !draft.On(in.Strategy.Enable) {
			continue
		}
		for _, c := range u.member.Containers {
			in.Containers = append(in.Containers, memoryContainer(f, u, c, m))
		}
	}
	m.marked = len(in.Containers)
	return in
}

// memoryContainer is one container as the memory loop looks at it: its use is the charge that the kernel holds against memory.high and
// memory.max, with kernel memory and shared memory. Anonymous memory is not counted as reclaimable: whether
// there is swap is not known here, and to wait for it costs more than to read a file again.
func memoryContainer(f *Facts, u *usage, c *workload.Container, m *memo) memqos.Container {
	b := m.memory(u.member.Pod, c)
	out := memqos.Container{
		ID: c.ID, Pod: u.member.Pod.UID, QoS: u.class, Request: b.Request, Max: b.Max, High: b.High, Low: b.Low,
		WmarkRatio: b.WmarkRatio, WmarkScale: b.WmarkScale, MinAdj: b.WmarkMinAdj,
	}
	if u.spec != nil {
		out.Priority = u.spec.Priority
	}
	out.Used, out.Reclaimable = f.charged(c.ID)
	if stall := f.slowly(sample.OfContainer(c.ID), sample.PSIMemorySome); stall.Known() {
		out.Stall = unit.Got(unit.Fraction(stall.Last))
	}
	if got, ok := f.Reclaimed[c.ID]; ok {
		out.Got = unit.Got(got)
	}
	return out
}

// charged is what the kernel holds against a container's limits, and what of that is file cache, which can be given back.
func (f *Facts) charged(id string) (all, reclaimable unit.Measured[unit.Bytes]) {
	one := sample.OfContainer(id)
	if charged := f.last(one, sample.MemoryCharged); charged.Known() {
		all = unit.Got(unit.Bytes(charged.Last))
	}
	if with, without := f.last(one, sample.MemoryWithPageCache), f.last(one, sample.MemoryUsage); with.Known() && without.Known() {
		reclaimable = unit.Got(unit.Bytes(max(with.Last-without.Last, 0)))
	}
	return all, reclaimable
}

// highs are the memory.high of the loop by container; nil for none.
func highs(list []memqos.High) map[string]node.MemoryHigh {
	if len(list) == 0 {
		return nil
	}
	out := make(map[string]node.MemoryHigh, len(list))
	for i := range list {
		if h := &list[i]; h.Bytes > 0 {
			out[h.Container] = node.MemoryHigh{Bytes: h.Bytes, Reason: h.Reason}
		}
	}
	return out
}
