// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"slices"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/psi"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// counted is how long after a stop at a quota began the kernel has counted it: it does so at the stop's end, the beginning of the next period
// (unthrottle_cfs_rq, kernel/sched/fair.c). A trigger is often sooner.
const counted = unit.CFSPeriod

// hearing is what the calls of triggers are judged by.
type hearing struct {
	state    *decide.State
	window   decide.Window
	interval unit.Micros // of the ticks
	trigger  psi.Trigger
	// stopped is Scanner.Stopped.
	stopped func(uid string) (micros float64, since unit.Micros, ok bool)
}

// sort tells the pods that are heard from those that are to be asked again, because what their limits do just now is not counted yet. Left out are those
// whose own limits have stopped them for as long as the trigger asks for, and those of whom that is not known.
func (h *hearing) sort(called []string, since map[string]unit.Micros, members []engine.Member, now unit.Micros) (waiting, late []string) {
	for _, uid := range called {
		i := slices.IndexFunc(members, func(m engine.Member) bool { return m.Pod.UID == uid })
		switch {
		case i < 0:
			waiting = append(waiting, uid)
		case !h.state.OwnKnown(h.window, &members[i], now), h.own(&members[i], now) >= float64(h.trigger.Stall.Microseconds()):
		case limited(&members[i]) && since[uid] <= now && now-since[uid] < counted:
			late = append(late, uid)
		default:
			waiting = append(waiting, uid)
		}
	}
	return waiting, late
}

// own is for how long, in microseconds, limits have stopped a pod over the time that the trigger looks at: since the last tick by what the kernel counts
// by now, before it by what the ticks have told. When in such a stretch it was stopped nobody knows, so that of one that begins before that time as large a
// part counts as lies in it. Over many calls that is right: stops that have nothing to do with a call lie anywhere in the stretch. All of it, of ten seconds
// say, would have a pod that is stopped for a moment in each of them never be heard.
func (h *hearing) own(m *engine.Member, now unit.Micros) (micros float64) {
	over := unit.Micros(h.trigger.Window.Microseconds()) + counted
	ticked := now // where nothing is known since the last tick it goes on
	if limited(m) {
		if grown, since, ok := h.stopped(m.Pod.UID); ok {
			micros, ticked = grown, since
			if past := now - since; past > over {
				micros *= float64(over) / float64(past)
			}
		}
	}
	for left := over - (now - ticked); left > 0; left, ticked = left-h.interval, ticked-h.interval {
		micros += h.told(m, ticked) * min(left, h.interval).Seconds()
	}
	return micros
}

// told is for how long in a second, in microseconds, limits have stopped a pod in the tick that ended at to.
func (h *hearing) told(m *engine.Member, to unit.Micros) (micros float64) {
	see := func(of sample.Subject) { // the time is told only of a tick in which it was stopped
		stopped, _, _ := h.window.Last(of, sample.CPUThrottledTime, to-h.interval, to)
		// Summed up over CPUs it may be longer than the periods in which it was stopped.
		if part, _, _ := h.window.Last(of, sample.CPUThrottled, to-h.interval, to); part > 0 {
			stopped = min(stopped, part*float64(unit.Second))
		}
		micros += stopped
	}
	see(sample.OfPod(m.Pod.UID))
	for _, c := range m.Containers {
		see(sample.OfContainer(c.ID))
	}
	return micros
}

// limited reports whether a pod or one of its containers has a limit.
func limited(m *engine.Member) bool {
	return m.Pod.Base.Quota.Or(0) > 0 ||
		slices.ContainsFunc(m.Containers, func(c *workload.Container) bool { return c.Base.Quota.Or(0) > 0 })
}
