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
	of     each[sample.Rate]
	now    proc.VMStat
	events usage.Events
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
		if e.fresh && t.due(e) && t.table(e.cg.Events(t.buf, &c.events)) {
			t.emitRate(e.subject, sample.MemoryAllocStall, c.of.of(e), c.events.High+c.events.Max, 1, t.clock())
		}
	}
}

func (c *reclaims) forget(e *entry) { c.of.forget(e) }

func (c *reclaims) close() { c.vmstat.Close() }
