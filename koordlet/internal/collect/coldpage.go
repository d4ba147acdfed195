// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"sync/atomic"

	"github.com/koord-rt/koord-rt/kernel/sys"
	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// coldPages tells the page cache that nobody touched for long, where the kernel has kidled (memory.idle_page_stats), and
//
//	memory with hot pages = memory with page cache − cold pages
//
// The cold part is read slowly; in between its last reading counts. While kidled is stopped every page seems hot: nothing is told
// then, and reports are without page cache. It is not started here: whoever runs the node decides whether all memory is scanned.
type coldPages struct {
	root *usage.Cgroup
	sys  sys.FS
	// stopped is why kidled tells nothing, empty while it does.
	stopped atomic.Pointer[string]
	state   coldState
	of      each[coldState]
}

type coldState struct {
	usage.Idle
	known bool
}

func newColdPages(m *machine) (collector, support) {
	group, err := m.usage.At("/")
	if err != nil {
		return nil, unless(err)
	}
	c := &coldPages{root: group, sys: m.sys}
	c.look()
	if !group.HasIdle() {
		return nil, support{no: "no memory.idle_page_stats: the kernel has no kidled"}
	}
	return c, c.now()
}

func (c *coldPages) look() {
	why := c.sys.KidledStopped()
	c.stopped.Store(&why)
}

// now implements changing.
func (c *coldPages) now() support {
	if why := *c.stopped.Load(); why != "" {
		return support{less: why + "; memory with hot page cache is reported without page cache"}
	}
	return support{}
}

func (c *coldPages) collect(t *tick) {
	if t.n%t.slow == 0 {
		c.look()
	}
	if *c.stopped.Load() != "" {
		c.state.known, c.of = false, each[coldState]{} // what it has told is old by then
		return
	}
	if m := &t.machine; m.memoryOK {
		c.emit(t, sample.OfNode(), c.root, &c.state, t.n%t.slow == 0, m.usedWithPageCache(), m.at)
	}
	for e := range t.entries() {
		if e.fresh && e.counters.Have.Has(usage.MemoryDetail) {
			c.emit(t, e.subject, e.cg, c.of.of(e), t.due(e), e.counters.Memory.WithPageCache(), e.at)
		}
	}
}

func (c *coldPages) emit(t *tick, s sample.Subject, cg *usage.Cgroup, state *coldState, due bool, all unit.Bytes, at unit.Micros) {
	if due {
		state.known = t.table(cg.Idle(t.buf, &state.Idle))
		if state.known {
			t.emit(s, sample.MemoryColdPages, float64(state.Cold), at)
		}
	}
	if state.known {
		t.emit(s, sample.MemoryWithHotPages, float64(all-state.Cold), at)
	}
}

func (c *coldPages) forget(e *entry) { c.of.forget(e) }
