// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"slices"

	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/model/unit"
)

// stop is what its quota has done to a cgroup by a moment.
type stop struct {
	ns, periods, throttled uint64
	at                     unit.Micros
}

func stopOf(c *usage.Counters, at unit.Micros) stop {
	return stop{c.ThrottledNS, c.Periods, c.Throttled, at}
}

// since is for how long the quota has stopped it since an earlier reading, in nanoseconds. The kernel sums up over CPUs, and a thousand CPUs that are
// stopped at once wait no longer than one. Hence it is at most
//
//	period × growth of nr_throttled, where period ≤ time ÷ (growth of nr_periods − 1)
//
// which asks nobody for the period, the kubelet's option: from the first end of a period to the last it took one less than ended. A stop is in nr_throttled
// when its period ends with it (do_sched_cfs_period_timer, kernel/sched/fair.c), but not when CPU time that others gave back, or a new quota, has ended it
// before: where none was counted, this bounds nothing.
func (s stop) since(was stop) uint64 {
	grown, periods, throttled := growth(was.ns, s.ns), growth(was.periods, s.periods), growth(was.throttled, s.throttled)
	if span := nanoseconds(s.at - was.at); periods > 1 && throttled > 0 {
		grown = min(grown, span/(periods-1)*throttled)
	}
	return grown
}

// growth of a counter; one that has fallen has begun anew.
func growth(was, now uint64) uint64 {
	if now < was {
		return now
	}
	return now - was
}

func nanoseconds(span unit.Micros) uint64 {
	return uint64(max(span, 0)) * 1000 //nolint:gosec // not negative
}

// ownTime is for how long limits of a pod and of its containers have stopped it since it is followed, in nanoseconds. It never falls.
type ownTime struct {
	// ns is all of it. before is that by the tick before, since which sum was added up, whereof as much counts as time has passed.
	ns, before, sum, passed uint64
}

// begin begins a tick, at which the pod was read so long after the time before.
func (o *ownTime) begin(passed uint64) { *o = ownTime{ns: o.ns, before: o.ns, passed: passed} }

// add adds one limit. A pod and its container with the same limit are often stopped at once.
func (o *ownTime) add(ns uint64) {
	o.sum += ns
	o.ns = o.before + min(o.sum, o.passed)
}

// stops is for how long its quota has stopped an entry since it was asked last. Of one that is asked for the first time that is all that its cgroup
// has counted, which may be days: what the pod's time allows counts (ownTime), and nothing at the pod's own first reading.
func (e *entry) stops() uint64 {
	if !e.counters.Have.Has(usage.CPUThrottle) {
		return 0
	}
	was := e.stop
	e.stop = stopOf(&e.counters, e.at)
	return e.stop.since(was)
}

// Stopped is for how long limits of a pod (by UID) and of its containers have stopped it since the last scan, at Since, by what the kernel counts by now,
// rather too long than too short. A stop that lasts is not counted before it ends. Not ok of a pod that was not read in the last scan. It is called by who
// calls Scan, between two of them.
func (s *Scanner) Stopped(uid string) (micros float64, since unit.Micros, ok bool) {
	t := &s.tick
	i := slices.IndexFunc(t.pods, func(p *podEntry) bool { return p.pod.UID == uid })
	if i < 0 || !t.pods[i].fresh {
		return 0, 0, false
	}
	p := t.pods[i]
	sum := t.stoppedNow(&p.entry)
	for _, c := range p.containers {
		sum += t.stoppedNow(c)
	}
	// A stop that ends now may have begun a period before the scan.
	most := nanoseconds(t.clock() - p.at + unit.CFSPeriod)
	return float64(min(sum, most)) / 1000, p.at, true
}

// stoppedNow is for how long its quota has stopped an entry since the last scan. Whose file cannot be read has ended, or the next scan tells.
func (t *tick) stoppedNow(e *entry) uint64 {
	if e.cg == nil || !e.fresh {
		return 0
	}
	var now usage.Counters
	if err := e.cg.Read(t.buf, usage.CPUThrottle, &now); err != nil || !now.Have.Has(usage.CPUThrottle) {
		return 0
	}
	return stopOf(&now, t.clock()).since(e.stop)
}
