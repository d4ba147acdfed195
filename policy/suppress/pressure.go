// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package suppress

import (
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Figures of the pressure path.
const (
	// DefaultPressureHigh is 50 ms of 500 ms, the default trigger.
	DefaultPressureHigh = unit.Fraction(0.1)
	cutLeast            = 0.25
	cutMost             = 0.5
	// cutEvery lets the pressure answer a cut before the next one.
	cutEvery = 500 * unit.Millisecond
	// calm lifts the cap; stale lifts it when pressure is no longer told.
	calm  = 10 * unit.Second
	stale = 30 * unit.Second
	// blameless is how long pressure may stand while BE is at its floor until it is held for somebody else's, ignored how
	// long it is then not listened to.
	blameless = 30 * unit.Second
	ignored   = 5 * unit.Minute
	// idlePercent of what it is granted: a tier that uses less is not the cause.
	idlePercent = unit.Percent(5)
)

// Pressure is the CPU pressure of the LS tier: PSI "some", the part of the time in which a task of it waited for a CPU.
type Pressure struct {
	Some unit.Measured[unit.Fraction]
	// High is where BE gives way; 0 means DefaultPressureHigh. Half of it counts as calm.
	High unit.Fraction
}

// PressureState is the part of the state that pressure moves. Instants are 0 when they do not apply.
type PressureState struct {
	// Capped: the tier is held to Cap, whatever the formula allows.
	Capped bool          `json:"capped,omitempty"`
	Cap    unit.MilliCPU `json:"cap,omitempty"`
	// CutAt is the last cut, SeenAt the last reading, CalmAt the beginning of calm, FloorAt the instant at which the tier
	// was at its floor and pressure still high, IgnoreTo the end of not listening.
	CutAt    unit.Micros `json:"cutAt,omitempty"`
	SeenAt   unit.Micros `json:"seenAt,omitempty"`
	CalmAt   unit.Micros `json:"calmAt,omitempty"`
	FloorAt  unit.Micros `json:"floorAt,omitempty"`
	IgnoreTo unit.Micros `json:"ignoreTo,omitempty"`
}

// pressure moves the pressure state: a cut while it is high, none while it is between, an end when it is calm.
func (w *work) pressure() {
	p, now := &w.press, w.in.Now
	high := w.in.Pressure.High
	if high <= 0 {
		high = DefaultPressureHigh
	}
	some, seen := w.in.Pressure.Some.V, w.in.Pressure.Some.OK
	if w.in.Urgent {
		some, seen = max(some, high), true
	}
	if now < max(p.CutAt, p.SeenAt) {
		*p = PressureState{} // another clock: the figures of the old one mean nothing
	}
	switch {
	case !seen:
		if p.Capped && now-p.SeenAt >= stale {
			w.lift("pressure is no longer measured")
		}
		return
	case some >= high:
		p.CalmAt, p.SeenAt = 0, now
		w.high(some, high)
		return
	}
	p.SeenAt, p.FloorAt = now, 0
	switch {
	case some >= high/2:
		p.CalmAt = 0
	case p.CalmAt == 0:
		p.CalmAt = now
	}
	if p.Capped && p.CalmAt != 0 && now-p.CalmAt >= calm {
		w.lift("LS no longer waits for CPUs")
	} else if p.Capped {
		w.note("held by LS pressure of late")
	}
}

// high cuts, unless BE cannot be the cause.
func (w *work) high(some, high unit.Fraction) {
	p, now := &w.press, w.in.Now
	waits := "LS waits for a CPU " + figure.Percent(some) + " of the time"
	if now < p.IgnoreTo {
		return
	}
	base := w.granted()
	if p.Capped {
		base = min(base, p.Cap)
	}
	if used, ok := w.beUsed(); ok {
		if used < idlePercent.Milli(base) {
			w.note(waits + ", but BE uses only " + figure.CPUs(used))
			return
		}
		base = min(base, used)
	}
	least := w.least()
	if base <= least {
		p.Capped, p.Cap = true, least
		w.atFloor(waits)
		return
	}
	if now-p.CutAt < cutEvery && p.Capped {
		w.note(waits + ": cut a moment ago")
		return
	}
	part := min(max(cutLeast*float64(some/high), cutLeast), cutMost)
	next := max(base-unit.MilliCPU(float64(base)*part), least)
	next += w.take(base - next)
	p.Capped, p.Cap, p.CutAt, p.FloorAt = true, next, now, 0
	w.cut = true
	w.note(waits + ": cut from " + figure.Cores(base) + " to " + figure.CPUs(next))
}

// atFloor waits for pressure that BE does not cause to show itself as such.
func (w *work) atFloor(waits string) {
	p, now := &w.press, w.in.Now
	switch {
	case p.FloorAt == 0:
		p.FloorAt = now
	case now-p.FloorAt >= blameless:
		p.IgnoreTo = now + ignored
		w.lift(waits + " although BE has been at its floor for " + figure.Duration(blameless) + ": BE is not the cause")
		return
	}
	w.note(waits + ": BE is at its floor")
}

// lift ends the cap.
func (w *work) lift(why string) {
	ignore := w.press.IgnoreTo
	w.press = PressureState{SeenAt: w.press.SeenAt, IgnoreTo: ignore}
	w.note("pressure cap lifted: " + why)
}

// least is the smallest amount that the policy in force can give.
func (w *work) least() unit.MilliCPU {
	if w.byQuota() {
		return max(w.floor, unit.MilliFromQuota(MinQuota, unit.CFSPeriod))
	}
	return unit.MilliCPU(max(ceilCPUs(w.floor), MinCPUs)) * milliPerCPU
}
