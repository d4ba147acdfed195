// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/container"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// use is what was used in the last second: CPUs and bytes.
type use struct {
	of               map[string]*used // by container id
	node, be, memory float64
	class            bool // the class's cgroup has been read before
}

// used is one container's. memory is what is not file cache: without swap it cannot be taken from it.
type used struct {
	cpu, throttled, stalled float64
	memory, cache           float64
	cached                  float64 // what file cache it would have had a second before
}

// uses is what a kernel makes of what everybody would use: quotas and sets hold, those that are not best effort come first, memory.high takes file
// cache and lets nothing else grow, and a node that has no memory left is none of our business. Then it is measured.
func (p *paper) uses(second int) {
	l := &p.s.load
	at, before := p.facts.Now-unit.Second/10, p.before()
	var batch []sample.Sample
	put := func(s sample.Subject, m sample.Metric, v float64) {
		batch = append(batch, sample.Sample{Subject: s, Metric: m, Value: v, At: at})
	}
	rated := func(yes bool, s sample.Subject, m sample.Metric, v float64) {
		if yes {
			put(s, m, v)
		}
	}
	all := second > 0
	cpus := float64(p.s.node.CPUs)
	system := l.at("system", "cpu", second, before)
	ours, lent := p.wanted(second, before)
	others := min(ours, cpus-system)
	squeeze := 1.0
	if ours > 0 {
		squeeze = others / ours
	}
	left := max(min(lent, p.limit(), cpus-system-others), 0)
	share := 1.0
	if lent > 0 {
		share = left / lent
	}
	p.use.node, p.use.be, p.use.memory = system+others+left, left, l.at("system", "memory", second, before)
	below := 0.0
	for _, one := range p.running {
		m := &one.member
		part := squeeze
		if m.Pod.Class() == protocol.QoSBE {
			part = share
		}
		old := second > 0 && one.read // the first figure of a counter takes two readings
		one.read = one.listed
		all = all && (old || m.Pod.Class() != protocol.QoSBE)
		pod := sample.OfPod(m.Pod.UID)
		cpu, memory, cached, waits, own := 0.0, 0.0, 0.0, l.at(m.Pod.Name, "stall", second, before), 0.0
		for _, c := range m.Containers {
			u := p.use.of[c.ID]
			u.cpu *= part
			p.remembers(m, c, u, second, before)
			of := sample.OfContainer(c.ID)
			rated(old, of, sample.CPUUsage, u.cpu)
			rated(old, of, sample.CPUThrottled, u.throttled)
			rated(old && u.throttled > 0, of, sample.CPUThrottledTime, u.throttled*1e6)
			rated(one.listed, of, sample.MemoryUsage, u.memory)
			rated(one.listed, of, sample.MemoryWithPageCache, u.memory+u.cache)
			rated(one.listed, of, sample.MemoryCharged, u.memory+u.cache)
			rated(one.listed, of, sample.PSIMemorySome, u.stalled)
			cpu, memory, cached, waits, own = cpu+u.cpu, memory+u.memory, cached+u.cache, waits+u.throttled, own+u.throttled
		}
		rated(old, pod, sample.CPUUsage, cpu)
		rated(one.listed, pod, sample.MemoryUsage, memory)
		rated(one.listed, pod, sample.MemoryWithPageCache, memory+cached)
		if m.Pod.KubeQoS == protocol.KubeBestEffort {
			below += cpu
		}
		rated(old, pod, sample.StallCPUSome, min(waits, 1)*1e6) // with what its own limits make of it
		rated(old && own > 0, pod, sample.StallCPUOwn, own*1e6)
		p.use.memory += memory
	}
	tier := sample.OfQoS(protocol.QoSBE)
	rated(all, tier, sample.CPUUsage, left)
	known := decide.BestEffort(p.facts.Members) != ""
	rated(known && p.use.class, tier, sample.ClassCPU, below)
	p.use.class = known
	rated(second > 0, tier, sample.StallCPUSome, (1-share)*1e6)
	rated(second > 0, sample.OfNode(), sample.CPUUsage, p.use.node)
	put(sample.OfNode(), sample.MemoryUsage, p.use.memory) // MemTotal - MemAvailable, which has no file cache
	if p.lost != nil {
		batch = slices.DeleteFunc(batch, func(s sample.Sample) bool { return p.lost(second, &s) })
	}
	p.w.Append(batch)
}

// before tells who used how many CPUs in the last second.
func (p *paper) before() func(whose string) float64 {
	used := map[string]float64{"be": p.use.be}
	for _, pod := range p.running {
		m := &pod.member
		for _, c := range m.Containers {
			used[m.Pod.Name] += p.use.of[c.ID].cpu
		}
	}
	return func(whose string) float64 { return used[whose] }
}

// need is what one container would use of something; its pod's line counts where it has no other.
func (p *paper) need(m *engine.Member, c *workload.Container, what string, second int, before func(string) float64) float64 {
	l := &p.s.load
	if _, own := l.needs[m.Pod.Name+"/"+c.Name+" "+what]; own || len(m.Containers) > 1 {
		return l.at(m.Pod.Name+"/"+c.Name, what, second, before)
	}
	return l.at(m.Pod.Name, what, second, before)
}

// wanted holds everybody to his quota, and adds up what those want who are not best effort, and who are.
func (p *paper) wanted(second int, before func(string) float64) (ours, lent float64) {
	for _, pod := range p.running {
		m := &pod.member
		for _, c := range m.Containers {
			u := p.use.of[c.ID]
			u.cpu, u.throttled = p.need(m, c, "cpu", second, before), 0
			if q := p.quotaOf(m, c); q > 0 {
				if most := float64(q) / float64(unit.CFSPeriod); u.cpu > most {
					u.cpu, u.throttled = most, 1-most/u.cpu
				}
			}
			if m.Pod.Class() == protocol.QoSBE {
				lent += u.cpu
			} else {
				ours += u.cpu
			}
		}
	}
	return ours, lent
}

// remembers moves a container's memory towards what it would have.
func (p *paper) remembers(m *engine.Member, c *workload.Container, u *used, second int, before func(string) float64) {
	memory, cache := p.need(m, c, "memory", second, before), p.need(m, c, "cache", second, before)
	u.cache = min(u.cache+max(cache-u.cached, 0), cache)
	had := u.memory
	u.memory, u.stalled = memory, 0
	u.cached = cache
	if high := float64(p.highOf(m, c)); high > 0 && u.memory+u.cache > high {
		u.cache = max(min(u.cache, high-u.memory), 0)
		if u.memory > high {
			u.memory = min(memory, max(had, high))
			u.stalled = 1 - u.memory/memory
		}
	}
	if most := float64(container.BaseMemory(p.facts.View, m.Pod, c).Max); most > 0 {
		u.memory = min(u.memory, most)
		u.cache = min(u.cache, most-u.memory)
	}
}

// looked is what somebody sees of the node: a number, a word or a set of CPUs.
type looked struct {
	number float64
	word   string
	set    *topo.CPUSet
}

func (l looked) String() string {
	switch {
	case l.set != nil && l.set.Empty():
		return "empty"
	case l.set != nil:
		return l.set.String()
	case l.word != "":
		return l.word
	}
	return fmt.Sprintf("%.6g", l.number)
}

// holds compares it with a value.
func (l looked) holds(op, value string) bool {
	switch {
	case l.set != nil:
		other, err := topo.ParseCPUSet(value)
		return err == nil && !l.set.Empty() && (op == "within" && l.set.SubsetOf(other) || op == "apart" && !l.set.Overlaps(other))
	case l.word != "":
		return op == "=" && l.word == value
	}
	v, err := amountOf(value)
	if err != nil {
		return false
	}
	return same(l.number, v) && op != "within" && op != "apart" || op == "<=" && l.number < v || op == ">=" && l.number > v
}

// look is what a want is about:
//
//	node cpu, be cpu          CPUs that were used in the last second
//	node memory               bytes, without file cache
//	be limit, be set          what the class may use: CPUs, and which; the set is empty where none is
//	pressure                  of the node's memory: calm, near, tight
//	pool                      of the CPUs that LS pods share: idle, cooling, overload
//	cuts, evicted, reclaimed  so far: how often pressure took something, pods, bytes
//	POD                       absent, runs, leaves, gone
//	POD cpu, POD memory       what its containers use, memory with file cache
//	POD cap                   CPUs that a pod which disturbs others is held to, -1 for none
//	POD/CONTAINER quota       µs of 100000, -1 for none
//	POD/CONTAINER high        bytes, -1 for none
func (p *paper) look(subject string) (looked, bool) {
	switch subject {
	case "node cpu":
		return looked{number: p.use.node}, true
	case "node memory":
		return looked{number: p.use.memory}, true
	case "be cpu":
		return looked{number: p.use.be}, true
	case "be limit":
		return looked{number: p.limit()}, true
	case "be set":
		var set topo.CPUSet
		if p.out.Suppress.Mode == suppress.CPUSet {
			set = p.out.Dynamic.BECPUs
		}
		return looked{set: &set}, true
	case "pressure":
		return looked{word: p.out.Memory.Pressure.String()}, true
	case "pool":
		return looked{word: p.out.Burst.Load.String()}, true
	case "cuts":
		return looked{number: float64(p.cuts)}, true
	case "evicted":
		return looked{number: float64(p.evicted)}, true
	case "reclaimed":
		return looked{number: p.reclaimed}, true
	}
	who, what, _ := strings.Cut(subject, " ")
	name, in, one := strings.Cut(who, "/")
	pod := p.pod(name)
	if pod == nil {
		return looked{}, false
	}
	for _, c := range pod.member.Containers {
		switch {
		case !one || c.Name != in:
		case what == "quota":
			return looked{number: float64(p.quotaOf(&pod.member, c))}, true
		case what == "high":
			if h := p.highOf(&pod.member, c); h > 0 {
				return looked{number: float64(h)}, true
			}
			return looked{number: -1}, true
		}
	}
	return p.lookAt(pod, what, one)
}

// lookAt is about a pod as a whole.
func (p *paper) lookAt(pod *paperPod, what string, one bool) (looked, bool) {
	sum := looked{}
	for _, c := range pod.member.Containers {
		switch u := p.use.of[c.ID]; {
		case pod.gone:
		case what == "cpu":
			sum.number += u.cpu
		case what == "memory":
			sum.number += u.memory + u.cache
		}
	}
	switch {
	case one:
		return looked{}, false
	case what == "cap":
		if most := p.out.Dynamic.Quotas[pod.uid].Cap; most > 0 {
			return looked{number: float64(most) / 1000}, true
		}
		return looked{number: -1}, true
	case what == "":
		return looked{word: pod.word()}, true
	}
	return sum, what == "cpu" || what == "memory"
}
