// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"maps"

	"github.com/koord-rt/koord-rt/kernel/resctrl"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// resctrls tells, for each control group and cache, the cache that is held and the memory bandwidth; of a pod that has a monitoring group,
// named by its UID, the sums over the caches. A counter that the hardware does not have now gives nothing.
type resctrls struct {
	fs     resctrl.FS
	groups map[groupDomain]*bandwidth
	// within are the control groups that have a monitoring group of a followed pod, by UID, as of the last listing.
	within map[string][]string
	of     each[podTraffic]
}

// podTraffic is a pod's traffic, by control group and cache: it moves when its class does, and counts from zero there.
type podTraffic map[groupDomain]*bandwidth

type groupDomain struct {
	group  string
	domain int
}

// bandwidth is one group's traffic at one cache.
type bandwidth struct {
	subject      sample.Subject
	total, local sample.Rate
	seen         uint64 // tick
}

func newResctrl(m *machine) (collector, support) {
	c := &resctrls{fs: resctrl.FS(m.opts.Roots.Resctrl), groups: map[groupDomain]*bandwidth{}}
	rdt, err := c.fs.Info(nil)
	switch {
	case !rdt.Mounted:
		return nil, support{no: rdt.Why}
	case !rdt.Mon && err != nil:
		return nil, unless(err)
	case !rdt.Mon:
		return nil, support{no: "resctrl has no monitoring here"}
	}
	return c, support{}
}

// collect lists the groups, and reads those of classes, in one tick; pods have their turns.
func (c *resctrls) collect(t *tick) {
	if t.n%t.slow == 0 {
		c.list(t)
	}
	for _, p := range t.pods {
		if groups := c.within[p.pod.UID]; len(groups) > 0 && t.due(&p.entry) {
			c.pod(t, p, groups)
		}
	}
}

func (c *resctrls) list(t *tick) {
	groups, err := c.fs.Groups()
	if err != nil {
		t.fail(err)
	}
	c.read(t, "")
	for _, g := range groups {
		c.read(t, g)
	}
	for k, b := range c.groups {
		if b.seen != t.n {
			delete(c.groups, k)
		}
	}
	c.find(t, groups)
}

// find looks for the followed pods' monitoring groups; others are other tools'.
func (c *resctrls) find(t *tick, groups []string) {
	c.within = make(map[string][]string, len(t.pods))
	for _, p := range t.pods {
		c.within[p.pod.UID] = nil
	}
	for _, g := range append([]string{""}, groups...) {
		names, err := c.fs.MonGroups(g)
		if err != nil {
			t.fail(err)
		}
		for _, uid := range names {
			if in, followed := c.within[uid]; followed {
				c.within[uid] = append(in, g)
			}
		}
	}
}

// pod sums up what its groups have at all caches, where each of them tells.
func (c *resctrls) pod(t *tick, p *podEntry, groups []string) {
	held := c.of.of(&p.entry)
	if *held == nil {
		*held = podTraffic{}
	}
	var occupied, total, local partial
	at := t.clock()
	for _, g := range groups {
		domains, err := c.fs.Monitor(g, p.pod.UID)
		if err != nil {
			t.fail(err)
		}
		for _, d := range domains {
			k := groupDomain{g, d.ID}
			b := (*held)[k]
			if b == nil {
				b = &bandwidth{}
				(*held)[k] = b
			}
			b.seen = t.n
			occupied.add(float64(d.Occupancy.Value), d.Occupancy.State == resctrl.Counted)
			total.rate(&b.total, d.Total, at)
			local.rate(&b.local, d.Local, at)
		}
	}
	maps.DeleteFunc(*held, func(_ groupDomain, b *bandwidth) bool { return b.seen != t.n })
	occupied.emit(t, p, sample.LLCOccupancy, at)
	total.emit(t, p, sample.MemoryBandwidthTotal, at)
	local.emit(t, p, sample.MemoryBandwidthLocal, at)
}

func (c *resctrls) forget(e *entry) { c.of.forget(e) }

// partial is a sum of parts; one that lacks a part is none.
type partial struct {
	sum   float64
	parts int
	lacks bool
}

func (s *partial) add(value float64, known bool) {
	s.sum, s.parts, s.lacks = s.sum+value, s.parts+1, s.lacks || !known
}

func (s *partial) rate(r *sample.Rate, c resctrl.Count, at unit.Micros) {
	if c.State != resctrl.Counted {
		s.add(0, false)
		return
	}
	if d, ok := r.Next(c.Value, at); ok {
		s.add(d.PerSecond(), true)
		return
	}
	s.add(0, false)
}

func (s *partial) emit(t *tick, p *podEntry, m sample.Metric, at unit.Micros) {
	if s.parts > 0 && !s.lacks {
		t.emit(p.subject, m, s.sum, at)
	}
}

func (c *resctrls) read(t *tick, group string) {
	domains, err := c.fs.Monitor(group, "")
	if err != nil {
		t.fail(err)
	}
	at := t.clock()
	for _, d := range domains {
		k := groupDomain{group, d.ID}
		b := c.groups[k]
		if b == nil {
			b = &bandwidth{subject: sample.OfLLC(group, d.ID)}
			c.groups[k] = b
		}
		b.seen = t.n
		if d.Occupancy.State == resctrl.Counted {
			t.emit(b.subject, sample.LLCOccupancy, float64(d.Occupancy.Value), at)
		}
		b.emit(t, sample.MemoryBandwidthTotal, &b.total, d.Total, at)
		b.emit(t, sample.MemoryBandwidthLocal, &b.local, d.Local, at)
	}
}

func (b *bandwidth) emit(t *tick, m sample.Metric, r *sample.Rate, c resctrl.Count, at unit.Micros) {
	if c.State == resctrl.Counted {
		t.emitRate(b.subject, m, r, c.Value, 1, at)
	}
}
