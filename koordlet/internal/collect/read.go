// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"errors"

	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// What is read of a cgroup in a tick is what can have changed since it was read last. What it cannot have changed is known all the
// same: its sample is as good as a reading.
//
//	CPU time    of the directories of pods (the QoS classes) and host applications; of a pod only when its directory has run,
//	            of a container only when its pod has: the counter of each has every nanosecond of all below it (cpuacct_charge
//	            and cgroup_base_stat_flush of the kernel add to all ancestors)
//	throttling  of who has run in this tick or the one before (the period's timer goes on for one period after the last
//	            task), or was stopped at its quota when it was read last
//	charge      (memory.current) likewise, of a pod or container when what is above it has run or its charge has moved
//	memory.stat once the charge has moved by 1 MiB or the cgroup has run for 10 ms since, in which a task can hardly turn more
//	            than 100 MiB of page cache into memory of its own; at the slow turn for anything less
//
// At its slow turn a cgroup is looked at whatever is told above it, so that one that was removed is noticed.

// The parts that a cgroup is opened for, and those that say whether there is more to read.
const (
	wanted = usage.Everything
	heads  = usage.CPUTime | usage.MemoryCurrent
)

// What memory.stat is read again for.
const (
	detailGrain = unit.Bytes(1 << 20)
	detailRun   = 10_000_000 // ns
)

// reading is what is known of a cgroup.
type reading struct {
	counters usage.Counters
	at       unit.Micros
	// fresh: known in this tick.
	fresh bool
	// ran: it has used CPU time since the tick before; moved: another charge. Both when that is not known.
	ran, moved bool
	// cores is the CPU used since the reading before; rated says that there was one.
	cores float64
	rated bool
	// limited: its quota has stopped it in the interval before the last reading; stop is how often and for how long in all.
	limited bool
	stop    stop
	// rested: at its slow turn, it has not run since the one before.
	rested bool
	turn   turn
	detail detail
	// What collectors have found at its slow turn, for those that come after them in the same tick: stalled is the pressure of each
	// of resources in microseconds per second, requests those to disks per second, waited what tasks have waited for.
	stalled  [len(resources)]figure
	requests figure
	waited   waits

	cpu, periods, throttled, stopped sample.Rate
}

// turn is the CPU time at the last slow turn.
type turn struct {
	usage uint64
	known bool
}

// detail is what CPU time and charge were when memory.stat was read.
type detail struct {
	usage   uint64
	current unit.Bytes
	// calm counts the slow turns in a row at which neither had moved.
	calm uint8
}

// settled slow turns without a move end the reading of memory.stat: the kernel folds small changes in within two seconds
// (FLUSH_TIME of mm/memcontrol.c), so that of two readings a slow interval apart the second is the last word.
const settled = 2

// A cgroup that does not exist is looked for at each of so many ticks, then at one in so many.
const (
	eagerOpens = 10
	lazyOpens  = 10
)

// read brings an entry's reading up to this tick; above is its pod or the pods' directory, nil where nothing is known of it.
// Afterwards fresh says whether there is something.
func (t *tick) read(e, above *entry) {
	before, due := e.ran, t.due(e)
	e.fresh, e.rated, e.ran, e.moved = false, false, false, false
	if e.cg == nil && !t.open(e, wanted) {
		t.report.Gone++
		return
	}
	was := e.counters
	begin := first(e, above, before)
	if begin == 0 && due {
		begin = usage.CPUTime
	}
	if begin == 0 {
		t.report.Spared++
	} else if !t.take(e, begin) {
		return
	}
	at := t.clock()
	if !begin.Has(usage.CPUTime) {
		at = above.at // it stood when its pod was read
	}
	c := &e.counters
	e.compare(&was)
	var parts usage.Part
	if t.apart && (e.ran || before || e.limited) {
		parts = usage.CPUThrottle
	}
	stat := e.detail.stale(c, due)
	if stat {
		parts |= usage.MemoryDetail
	}
	if parts != 0 && !t.take(e, parts) {
		return
	}
	if stat {
		e.detail.taken(c, due)
	}
	e.finish(at, due)
	t.report.Cgroups++
}

// readParent reads the directory of several pods, which tells when none of them has anything new.
func (t *tick) readParent(e *entry) {
	e.fresh = false
	if e.cg == nil && !t.open(e, heads) {
		return
	}
	was := e.counters
	switch err := e.cg.Read(t.buf, heads, &e.counters); {
	case errors.Is(err, usage.ErrGone):
		e.close()
	case err != nil:
		t.fail(err)
	default:
		e.at, e.fresh = t.clock(), true
		e.compare(&was)
	}
}

// compare notes what is new since an earlier reading.
func (e *entry) compare(was *usage.Counters) {
	c := &e.counters
	e.ran = !was.Have.Has(usage.CPUTime) || !c.Have.Has(usage.CPUTime) || c.UsageNS != was.UsageNS
	e.moved = !was.Have.Has(usage.MemoryCurrent) || !c.Have.Has(usage.MemoryCurrent) || c.Current != was.Current
}

// first are the parts that say whether there is more to read: none where it is told above that nothing has changed. before: it has
// run in the tick before.
func first(e, above *entry, before bool) usage.Part {
	stood := above != nil && above.fresh && !above.ran && e.counters.Have.Has(usage.CPUTime)
	switch {
	case !stood || before || e.limited:
		return heads
	case above.moved:
		return usage.MemoryCurrent
	}
	return 0
}

// take reads parts of an entry; false when the cgroup is gone.
func (t *tick) take(e *entry, parts usage.Part) bool {
	err := e.cg.Read(t.buf, parts, &e.counters)
	if errors.Is(err, usage.ErrGone) {
		e.close()
		t.report.Gone++
		return false
	}
	if err != nil {
		t.fail(err)
	}
	return true
}

// finish rates the CPU time.
func (e *entry) finish(at unit.Micros, due bool) {
	c := &e.counters
	e.at, e.fresh = at, true
	known := c.Have.Has(usage.CPUTime)
	if known {
		if d, ok := e.cpu.Next(c.UsageNS, at); ok {
			e.cores, e.rated = d.PerSecond()/1e9, true
		}
	}
	if due {
		e.rested = known && e.turn.known && e.turn.usage == c.UsageNS
		e.turn = turn{c.UsageNS, known}
	}
}

// stale reports whether memory.stat may say something else by now.
func (d *detail) stale(c *usage.Counters, due bool) bool {
	if !c.Have.Has(usage.MemoryDetail) || !c.Have.Has(usage.MemoryCurrent) {
		return true
	}
	if max(c.Current-d.current, d.current-c.Current) >= detailGrain || c.UsageNS-d.usage >= detailRun {
		return true
	}
	return due && !(d.calm >= settled && d.same(c))
}

func (d *detail) same(c *usage.Counters) bool { return d.usage == c.UsageNS && d.current == c.Current }

// taken notes a reading of memory.stat.
func (d *detail) taken(c *usage.Counters, due bool) {
	calm := uint8(0)
	if due && d.same(c) {
		calm = min(d.calm+1, settled)
	}
	*d = detail{usage: c.UsageNS, current: c.Current, calm: calm}
}

func (t *tick) open(e *entry, parts usage.Part) bool {
	if e.failures > eagerOpens && e.failures%lazyOpens != 0 {
		e.failures++
		return false
	}
	cg, err := t.usage.Open(e.path, parts)
	if err != nil {
		e.failures++
		if !errors.Is(err, usage.ErrGone) {
			t.fail(err)
		}
		return false
	}
	e.cg, e.failures = cg, 0
	return true
}

// close gives the descriptors back and forgets the counters: what comes next is another cgroup.
func (e *entry) close() {
	if e.cg != nil {
		e.cg.Close()
		e.cg = nil
	}
	e.reading = reading{}
}
