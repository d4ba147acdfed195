// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package suppress

import (
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// byQuota reports policy cfsQuota.
func (w *work) byQuota() bool {
	p := w.in.Strategy.CPUSuppressPolicy
	return p != nil && *p == strategy.SuppressCFSQuota
}

// quota decides by policy cfsQuota.
func (w *work) quota() State {
	next := State{Mode: Quota, Quota: w.s.Quota, Press: w.press}
	have := w.s.Quota
	want := have
	if w.s.Mode != Quota {
		// A cpuset was in force and no figure is at hand: the same amount as a quota.
		want = max(unit.Micros(w.granted())*microsPerMilliCPU, MinQuota)
	}
	if w.allowance.OK {
		want = max(unit.Micros(max(w.allowance.V, w.floor, 0))*microsPerMilliCPU, MinQuota)
		if w.allowance.V < w.floor {
			w.note("floor of " + figure.CPUs(w.floor))
		}
	}
	granted := unit.MilliFromQuota(want, unit.CFSPeriod)
	if most := w.bounded(granted); most < granted {
		want = max(unit.Micros(max(most, w.least()))*microsPerMilliCPU, MinQuota)
	}
	whole := unit.Micros(w.capacity) * microsPerMilliCPU
	step := growPercent.Micros(whole)
	floor := unit.Micros(w.floor) * microsPerMilliCPU
	reaches := have < floor && want >= floor // steps may end just below
	switch {
	case w.s.Mode != Quota:
		next.Quota, next.Grow.Grown = want, w.in.Now
		return next
	case want > have && (w.in.Urgent || w.early()), !w.cut && !reaches && max(want-have, have-want) < bandPercent.Micros(whole):
		want = have
	case want-have > step:
		w.note("grows to " + figure.Quota(want) + " by " + figure.Quota(step) + " at a time")
		want = have + step
	}
	next.Grow.Grown = w.s.Grow.Grown
	if want > have {
		next.Grow.Grown = w.in.Now
	}
	next.Quota = want
	return next
}

// early reports that the last growth was in this tick.
func (w *work) early() bool {
	since := w.in.Now - w.s.Grow.Grown
	return since >= 0 && since < growEvery
}
