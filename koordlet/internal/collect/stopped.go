// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"slices"

	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/model/unit"
)

// stops is for how long its quota has stopped an entry since it was asked last, in nanoseconds. One that is asked for the first time has just been made,
// as a counter that has fallen has begun anew: all that it has counted is new.
func (e *entry) stops() uint64 {
	if !e.counters.Have.Has(usage.CPUThrottle) {
		return 0
	}
	grown := growth(e.stoppedNS, e.counters.ThrottledNS)
	e.stoppedNS = e.counters.ThrottledNS
	return grown
}

func growth(was, now uint64) uint64 {
	if now < was {
		return now
	}
	return now - was
}

// Stopped is for how long limits of a pod (by UID) and of its containers have stopped it since the last scan, at Since, by what the kernel counts by now,
// summed up over CPUs. A stop that lasts is not counted before it ends. Not ok of a pod that was not read in the last scan. It is called by who calls
// Scan, between two of them.
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
	return float64(sum) / 1000, p.at, true
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
	return growth(e.stoppedNS, now.ThrottledNS)
}
