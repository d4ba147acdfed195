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
// by now, before it by what the ticks have told, whole ticks, so that it is rather too long than too short.
func (h *hearing) own(m *engine.Member, now unit.Micros) (micros float64) {
	ticked := now
	if limited(m) {
		if grown, since, ok := h.stopped(m.Pod.UID); ok {
			micros, ticked = grown, since
		}
	}
	before := ticked - (now - unit.Micros(h.trigger.Window.Microseconds()) - counted)
	if before <= 0 {
		return micros
	}
	from := ticked - (before+h.interval-1)/h.interval*h.interval
	told := func(of sample.Subject) { // only of ticks in which it was stopped
		q := h.window.Query(of, sample.CPUThrottledTime, from, ticked)
		micros += q.Avg * float64(q.Count) * h.interval.Seconds()
	}
	told(sample.OfPod(m.Pod.UID))
	for _, c := range m.Containers {
		told(sample.OfContainer(c.ID))
	}
	return micros
}

// limited reports whether a pod or one of its containers has a limit.
func limited(m *engine.Member) bool {
	return m.Pod.Base.Quota.Or(0) > 0 ||
		slices.ContainsFunc(m.Containers, func(c *workload.Container) bool { return c.Base.Quota.Or(0) > 0 })
}
