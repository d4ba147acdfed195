// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"cmp"
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/draft"
	"github.com/koord-rt/koord-rt/policy/interference"
	"github.com/koord-rt/koord-rt/policy/memqos"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// watched are the signals that one metric of the pod tells; scale makes the signal's unit of the metric's.
var watched = [...]struct {
	signal interference.Signal
	metric sample.Metric
	scale  float64
}{
	{interference.CPUPressure, sample.StallCPUSome, 1e-6},
	{interference.MemoryPressure, sample.StallMemorySome, 1e-6},
	{interference.IOPressure, sample.StallIOSome, 1e-6},
	{interference.AllocationLatency, sample.MemoryAllocLatency, 1e-6},
	{interference.DiskLatency, sample.DiskLatency, 1},
	{interference.NetworkLatency, sample.NetworkRTT, 1},
}

// interferenceInput is what interference detection looks at; before is the step before. A BE pod's use is told only of
// what a cap can take from it: nobody shall be tried for what nothing is done about.
func interferenceInput(f *Facts, a *accounts, s *State) interference.Input {
	before, m := s.Interference.At, s.memo
	in := interference.Input{Now: f.Now, Pods: make([]interference.Pod, 0, len(a.pods)), Pace: f.Pace}
	cpu, memory, network := f.holds(interference.CPU, s), f.holds(interference.Memory, s), f.holds(interference.Network, s)
	disk := f.holds(interference.Disk, s)
	for i := range a.pods {
		u := &a.pods[i]
		if u.again {
			continue
		}
		p := interference.Pod{UID: u.member.Pod.UID, Name: m.name(u.member.Pod), QoS: u.class}
		if u.class != protocol.QoSBE {
			f.signals(u, before, &p.Signals)
			f.uses(u, &p.Used)
		} else {
			if cpu && f.writes(u, protocol.FeatureBatch) {
				p.Used[interference.CPU] = cores(u.cpu)
			}
			if memory && f.writes(u, protocol.FeatureMemory) {
				p.Used[interference.Memory] = sum(f.last(sample.OfPod(p.UID), sample.MemoryWithPageCache))
			}
			if disk && f.writes(u, protocol.FeatureBlkIO) {
				p.Used[interference.Disk] = sum(f.slowly(sample.OfPod(p.UID), sample.DiskReadBytes), f.slowly(sample.OfPod(p.UID), sample.DiskWriteBytes))
			}
			if network && u.spec != nil && !u.spec.HostNetwork && len(u.spec.IPs) > 0 && !u.member.Pod.Ask.OptOut.Has(protocol.FeatureNetwork) {
				p.Used[interference.Network] = sum(f.slowly(sample.OfPod(p.UID), sample.NetworkTransmit))
			}
		}
		in.Pods = append(in.Pods, p)
	}
	if network {
		s.passed(in.Pods)
	}
	return in
}

// holds reports whether a cap on a BE pod would be put in force: of CPU time suppression does it, by the pod's quota; of memory the
// memory loop, by memory.high of its containers; of what it sends the uplink's loop, where it shapes that; of what it
// reads and writes its limits at the disks.
func (f *Facts) holds(r interference.Resource, s *State) bool {
	feature, knob := protocol.FeatureBatch, plan.CPUQuota
	switch r {
	case interference.CPU, interference.Cache:
	case interference.Memory:
		if feature, knob = protocol.FeatureMemory, plan.MemoryHigh; !f.View.Kernel.Has(knob) {
			return false
		}
	case interference.Disk:
		if feature, knob = protocol.FeatureBlkIO, plan.IOReadBPS; !f.View.Kernel.Has(knob) || !f.View.Kernel.Has(plan.IOWriteBPS) || f.View.Ceded.Has(plan.IOWriteBPS) {
			return false
		}
	case interference.Network:
		if feature, knob = protocol.FeatureNetwork, plan.NetShape; networkOff(f.View) != "" || !s.sends() {
			return false
		}
	default:
		return false
	}
	t := f.View.Strategy.Threshold()
	return draft.On(t.Enable) && f.View.Mode(feature) == node.Active && !f.View.Ceded.Has(knob)
}

// held are the suspects whose caps are put in force: what is not proves nothing.
func (f *Facts) held(s *State) (out []interference.Suspicion) {
	for _, suspect := range s.Interference.Suspects {
		if f.holds(suspect.Resource, s) {
			out = append(out, suspect)
		}
	}
	return out
}

// hoarders are the suspects that give memory.
func hoarders(suspects []interference.Suspicion) (out []memqos.Antagonist) {
	for _, s := range suspects {
		if s.Resource == interference.Memory {
			out = append(out, memqos.Antagonist{Pod: s.Pod, Cap: unit.Bytes(s.Limit)})
		}
	}
	return out
}

// writes reports whether a feature may write for the pod.
func (f *Facts) writes(u *usage, feature protocol.Feature) bool {
	active, _ := draft.Features(f.View, u.member.Pod)
	return active.Has(feature)
}

// ownLeast is how long in a second a pod's own limits stop it so that its delay is theirs: a twentieth, the least of CPU pressure and of CPU delay in
// policy/interference, below which nobody calls a pod disturbed.
const ownLeast = unit.Second / 20

// signals are what is new since the step before. A pod that its own limits stop waits for CPUs because of them. Where it is known for how long they did at most
// in the interval of its pressure, that is taken off; its delay, which adds up all tasks, then tells of others only while that is little. Where it is not,
// neither tells anything of others while a limit stops it.
func (f *Facts) signals(u *usage, before unit.Micros, out *[interference.NumSignals]unit.Measured[interference.Level]) {
	pod := sample.OfPod(u.member.Pod.UID)
	limit := f.limited(u, before)
	out[interference.Throttled] = limit
	own := f.since(pod, sample.StallCPUOwn, before)
	for _, w := range watched {
		q := f.since(pod, w.metric, before)
		if w.signal == interference.CPUPressure {
			q = others(q, own, limit.V > 0)
		}
		if q.Known() {
			out[w.signal] = unit.Got(interference.Level(q.Last * w.scale))
		}
	}
	stopped := limit.V > 0
	if own.Known() {
		stopped = own.Last >= float64(ownLeast)
	}
	// Waiting and running are µs of a second, of all its tasks together.
	if delay := f.since(pod, sample.RunQueueDelay, before); delay.Known() && u.cpu.OK && !stopped {
		if ran := float64(u.cpu.V) * 1000; delay.Last+ran > 0 {
			out[interference.CPUDelay] = unit.Got(interference.Level(delay.Last / (delay.Last + ran)))
		}
	}
	var cycles, instructions float64
	for _, c := range u.member.Containers {
		one := sample.OfContainer(c.ID)
		if q := f.since(one, sample.Cycles, before); q.Known() {
			cycles += q.Last
			instructions += f.since(one, sample.Instructions, before).Last
		}
	}
	if instructions > 0 {
		out[interference.CPI] = unit.Got(interference.Level(cycles / instructions))
	}
}

// others is what of a pod's pressure its own limits have not made. It is not known of one that they stop, nobody knows for how long; nor where that
// is half of it and more: it is at most so long (collect), and what is too little would be learned as what is usual.
func others(stall, own seen, limited bool) seen {
	switch {
	case own.Known() && own.To == stall.To:
		if own.Last >= stall.Last/2 {
			return seen{}
		}
		stall.Last -= own.Last
	case limited:
		return seen{}
	}
	return stall
}

// limited is the part of its periods in which a limit of the pod, or of one of its containers, stopped it: the worst.
func (f *Facts) limited(u *usage, before unit.Micros) (out unit.Measured[interference.Level]) {
	see := func(s sample.Subject) {
		if q := f.since(s, sample.CPUThrottled, before); q.Known() {
			out = unit.Got(max(out.V, interference.Level(q.Last)))
		}
	}
	see(sample.OfPod(u.member.Pod.UID))
	for _, c := range u.member.Containers {
		see(sample.OfContainer(c.ID))
	}
	return out
}

// uses are what a pod uses itself, so that a busy pod is not taken for a disturbed one.
func (f *Facts) uses(u *usage, out *[interference.NumResources]unit.Measured[interference.Level]) {
	pod := sample.OfPod(u.member.Pod.UID)
	out[interference.CPU] = cores(u.cpu)
	out[interference.Memory] = sum(f.last(pod, sample.MemoryWithPageCache))
	out[interference.Disk] = sum(f.slowly(pod, sample.DiskReadBytes), f.slowly(pod, sample.DiskWriteBytes))
	out[interference.Network] = sum(f.slowly(pod, sample.NetworkReceive), f.slowly(pod, sample.NetworkTransmit))
}

// sum adds up what was measured last; not OK unless all of it was.
func sum(parts ...seen) unit.Measured[interference.Level] {
	var total float64
	for _, q := range parts {
		if !q.Known() {
			return unit.Measured[interference.Level]{}
		}
		total += q.Last
	}
	return unit.Got(interference.Level(total))
}

func cores(m unit.Measured[unit.MilliCPU]) unit.Measured[interference.Level] {
	return unit.Measured[interference.Level]{V: interference.Level(m.V) / 1000, OK: m.OK}
}

// since is what was measured after the step before, not known when there is nothing new. The window keeps seconds, each
// around the instant of a tick: half a second tells one tick from the next.
func (f *Facts) since(s sample.Subject, m sample.Metric, before unit.Micros) seen {
	if before <= 0 || before >= f.Now {
		before = f.Now - f.Interval
	}
	q := f.newest(s, m, before, f.Now+1)
	if !q.Known() || q.To <= before+unit.Second/2 {
		return seen{}
	}
	return q
}

// antagonists are the suspects that give CPU time, the worst first. What disturbs the cache gives CPU time too.
func antagonists(suspects []interference.Suspicion, a *accounts) []suppress.Antagonist {
	var held []interference.Suspicion
	for _, s := range suspects {
		if s.Resource == interference.CPU || s.Resource == interference.Cache {
			held = append(held, s)
		}
	}
	slices.SortStableFunc(held, func(x, y interference.Suspicion) int {
		return cmp.Or(cmp.Compare(y.Correlation*y.Part, x.Correlation*x.Part), cmp.Compare(x.Pod, y.Pod))
	})
	var out []suppress.Antagonist
	for _, s := range held {
		c := interference.Cap{Limit: s.Limit}
		if i := slices.IndexFunc(out, func(o suppress.Antagonist) bool { return o.Pod == s.Pod }); i >= 0 {
			out[i].Cap = min(out[i].Cap, c.CPU())
			continue
		}
		out = append(out, suppress.Antagonist{Pod: s.Pod, Used: a.used(s.Pod), Cap: c.CPU()})
	}
	return out
}

// used is the CPU time of a pod, 0 where it was not measured.
func (a *accounts) used(uid string) unit.MilliCPU {
	i := slices.IndexFunc(a.pods, func(u usage) bool { return u.member.Pod.UID == uid })
	if i < 0 {
		return 0
	}
	return a.pods[i].cpu.V
}
