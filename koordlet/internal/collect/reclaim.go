// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/model/sample"
)

// reclaims tells how often allocations had to reclaim memory themselves:
//
//	node: Δ(allocstall_*) / Δt of /proc/vmstat
//	cgroup: Δ(high + max) / Δt of memory.events; on v1 the failures at the limit, memory.failcnt
type reclaims struct {
	vmstat *root.File[proc.VMStat]
	node   sample.Rate
	of     each[stalls]
	now    proc.VMStat
	events usage.Events
}

// stalls is a cgroup's counter.
type stalls struct {
	rate  sample.Rate
	count uint64
	known bool
}

func newReclaim(m *machine) (collector, support) {
	f, err := m.proc.VMStatFile()
	if err != nil {
		return nil, unless(err)
	}
	return &reclaims{vmstat: f}, support{}
}

func (c *reclaims) collect(t *tick) {
	if err := c.vmstat.Read(t.buf, &c.now); err != nil {
		t.fail(err)
	} else {
		t.emitRate(sample.OfNode(), sample.MemoryAllocStall, &c.node, c.now.AllocStall, 1, t.clock())
	}
	for e := range t.entries() {
		if e.fresh && t.due(e) {
			c.cgroup(t, e)
		}
	}
}

// cgroup: who has not run has allocated nothing.
func (c *reclaims) cgroup(t *tick, e *entry) {
	s := c.of.of(e)
	if !e.rested || !s.known {
		if !t.table(e.cg.Events(t.buf, &c.events)) {
			return
		}
		s.count, s.known = c.events.High+c.events.Max, true
	}
	t.emitRate(e.subject, sample.MemoryAllocStall, &s.rate, s.count, 1, t.clock())
}

func (c *reclaims) forget(e *entry) { c.of.forget(e) }

func (c *reclaims) close() { c.vmstat.Close() }
