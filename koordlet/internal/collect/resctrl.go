// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"github.com/koord-rt/koord-rt/kernel/resctrl"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// resctrls tells, for each control group and cache, the cache that is held and the memory bandwidth. A counter that the hardware does
// not have now gives nothing.
type resctrls struct {
	fs     resctrl.FS
	groups map[groupDomain]*bandwidth
}

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

func (c *resctrls) collect(t *tick) {
	if t.n%t.slow != 0 {
		return
	}
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
