// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package suppress

import (
	"slices"

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
	// calm lifts the cap; bearable lifts it when pressure was not high for so long, calm or not: some pods always wait a little.
	// stale lifts it when pressure is no longer told.
	calm     = 10 * unit.Second
	bearable = unit.Minute
	stale    = 30 * unit.Second
	// blameless is how long pressure may stand, or come again and again without ten calm seconds, at least atFloorLeast times, while BE is at
	// its floor until it is held for somebody else's, ignored how long it is then not listened to.
	blameless    = 30 * unit.Second
	atFloorLeast = 3
	ignored      = 5 * unit.Minute
	// Pressure that comes back within soon of having gone, or of the end of a hold, is met half way next time, for holdFor, and twice as long each time
	// again, at most 2^holdMost times. Comes it refutes times in a row when BE has been held so for stands, it is not BE's amount that brings it;
	// before, it is what BE has just grown by.
	soon     = unit.Minute
	holdFor  = 30 * unit.Second
	holdMost = 4
	refutes  = 3
	stands   = 5 * unit.Second
	// idlePercent of what it is granted: a tier that uses less is not the cause.
	idlePercent = unit.Percent(5)
)

// Pressure is the CPU pressure of the LS tier: PSI "some", the part of the time in which a task of it waited for a CPU.
type Pressure struct {
	// Some is that of the tier as a whole; Pods are those of whom it is known one by one. The highest of all counts.
	Some unit.Measured[unit.Fraction]
	Pods []Stall
	// Waiting are the pods (by UID) that a trigger has called for.
	Waiting []string
	// High is where BE gives way; 0 means DefaultPressureHigh. Half of it counts as calm.
	High unit.Fraction
}

// Stall is one pod's pressure, without what its own limit has made of it, measured up to At. What ends before the last cut says nothing of what the
// cut has done, unless the pod calls again.
type Stall struct {
	Pod  string // UID
	Some unit.Fraction
	At   unit.Micros
}

// Ignored is a pod whose pressure was found not to be BE's doing; it is not listened to before To.
type Ignored struct {
	Pod string      `json:"pod"`
	To  unit.Micros `json:"to"`
}

// PressureState is the part of the state that pressure moves. Instants are 0 when they do not apply.
type PressureState struct {
	// Capped: the tier is held to Cap, whatever the formula allows.
	Capped bool          `json:"capped,omitempty"`
	Cap    unit.MilliCPU `json:"cap,omitempty"`
	// CutAt is the last cut, SeenAt the last reading, HighAt the last high one, CalmAt the beginning of calm, FloorAt the first instant
	// at which the tier was at its floor and pressure still high, IgnoreTo the end of not listening to a tier of which no pods are known.
	CutAt    unit.Micros `json:"cutAt,omitempty"`
	SeenAt   unit.Micros `json:"seenAt,omitempty"`
	HighAt   unit.Micros `json:"highAt,omitempty"`
	CalmAt   unit.Micros `json:"calmAt,omitempty"`
	FloorAt  unit.Micros `json:"floorAt,omitempty"`
	IgnoreTo unit.Micros `json:"ignoreTo,omitempty"`
	// FloorPods have waited whenever pressure was high since FloorAt, FloorSeen times. Ignored are single pods that are not listened to.
	FloorPods []string  `json:"floorPods,omitempty"`
	FloorSeen int       `json:"floorSeen,omitempty"`
	Ignored   []Ignored `json:"ignored,omitempty"`
	Past      Past      `json:"past,omitzero"`
}

// Past is what is known of pressure that has gone: without it best effort would grow into the same pressure again and again.
type Past struct {
	// Bad is what BE used when LS began to wait, Good what it was held to when LS did not any more, at LiftedAt.
	Bad      unit.MilliCPU `json:"bad,omitempty"`
	Good     unit.MilliCPU `json:"good,omitempty"`
	LiftedAt unit.Micros   `json:"liftedAt,omitempty"`
	// Again is how often it has come back soon, HoldTo until when BE is held half way between Good and Bad.
	Again  int         `json:"again,omitempty"`
	HoldTo unit.Micros `json:"holdTo,omitempty"`
	// Refuted is how often in a row it has come back while BE was held so, DeafTo until when nothing is concluded from it.
	Refuted int         `json:"refuted,omitempty"`
	DeafTo  unit.Micros `json:"deafTo,omitempty"`
}

// begins notes that LS waits while BE uses so much, which it was given at grown, and whether that is the pressure of a moment ago.
func (p *Past) begins(now, grown unit.Micros, used unit.MilliCPU) {
	switch {
	case now < p.DeafTo:
		return
	case p.LiftedAt == 0 || now-max(p.LiftedAt, p.HoldTo) >= soon:
		p.Again, p.Refuted = 0, 0
	case now < p.HoldTo && now-max(p.LiftedAt, grown) < stands:
		p.Again++
	case now < p.HoldTo:
		p.Again, p.Refuted = p.Again+1, p.Refuted+1
	default:
		p.Again, p.Refuted = p.Again+1, 0
	}
	if p.Refuted >= refutes {
		*p = Past{DeafTo: now + ignored}
		return
	}
	p.Bad, p.HoldTo = used, 0
}

// ends notes what LS did not wait beside.
func (p *Past) ends(now unit.Micros, held unit.MilliCPU) {
	if now < p.DeafTo {
		return
	}
	p.Good, p.LiftedAt = held, now
	if p.Again > 0 {
		p.HoldTo = now + holdFor<<min(p.Again-1, holdMost)
	}
}

// pressure moves the pressure state: a cut while it is high, none while it is between, an end when it is calm, or was not high for long.
func (w *work) pressure() {
	p, now := &w.press, w.in.Now
	high := w.in.Pressure.High
	if high <= 0 {
		high = DefaultPressureHigh
	}
	if now < max(p.CutAt, p.SeenAt, p.Past.LiftedAt, p.Past.DeafTo-ignored) {
		*p = PressureState{} // another clock: the figures of the old one mean nothing
	}
	some, seen, who := w.feel(high)
	switch {
	case !seen:
		if p.Capped && now-p.SeenAt >= stale {
			w.lift("pressure is no longer measured")
		}
		return
	case some >= high:
		p.CalmAt, p.SeenAt, p.HighAt = 0, now, now
		w.high(some, high, who)
		return
	}
	p.SeenAt = now
	if p.Capped && p.HighAt == 0 {
		p.HighAt = now // an older koordlet's state
	}
	switch {
	case some >= high/2:
		p.CalmAt = 0
	case p.CalmAt == 0:
		p.CalmAt = now
	}
	switch {
	case !p.Capped:
	case p.CalmAt != 0 && now-p.CalmAt >= calm:
		w.end("LS no longer waits for CPUs")
	case now-p.HighAt >= bearable:
		w.end("LS has waited for less than " + figure.Percent(high) + " of the time, for " + figure.Duration(now-p.HighAt))
	default:
		w.note("held by LS pressure of late")
	}
}

// end lifts a cap that LS did not wait beside.
func (w *work) end(why string) {
	if p := &w.press; p.CutAt != 0 {
		p.Past.ends(w.in.Now, p.Cap)
	}
	w.lift(why)
}

// feel is the highest pressure of who is listened to, and the pods that are above high; seen is false when nothing was measured.
func (w *work) feel(high unit.Fraction) (some unit.Fraction, seen bool, who []string) {
	p, in := &w.press, &w.in.Pressure
	p.Ignored = slices.DeleteFunc(slices.Clone(p.Ignored), func(i Ignored) bool { return i.To <= w.in.Now })
	deaf := func(pod string) bool {
		return slices.ContainsFunc(p.Ignored, func(i Ignored) bool { return i.Pod == pod })
	}
	if in.Some.OK {
		some, seen = in.Some.V, true
	}
	for i := range in.Pods {
		s := &in.Pods[i]
		if s.At != 0 && s.At <= p.CutAt && !slices.Contains(in.Waiting, s.Pod) {
			continue
		}
		seen = true
		if !deaf(s.Pod) {
			some = max(some, s.Some)
			if s.Some >= high {
				who = append(who, s.Pod)
			}
		}
	}
	if !w.in.Urgent {
		return some, seen, who
	}
	called := len(in.Waiting) == 0
	for _, pod := range in.Waiting {
		if deaf(pod) {
			continue
		}
		called = true
		if !slices.Contains(who, pod) {
			who = append(who, pod)
		}
	}
	if called {
		some, seen = max(some, high), true
	}
	return some, seen, who
}

// high cuts, unless BE cannot be the cause.
func (w *work) high(some, high unit.Fraction, who []string) {
	p, now := &w.press, w.in.Now
	waits := "LS waits for a CPU " + figure.Percent(some) + " of the time"
	if now < p.IgnoreTo && len(who) == 0 {
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
		w.atFloor(waits, who)
		return
	}
	if now-p.CutAt < cutEvery && p.Capped {
		w.note(waits + ": cut a moment ago")
		return
	}
	if !p.Capped {
		p.Past.begins(now, w.s.Grow.Grown, base)
	}
	part := min(max(cutLeast*float64(some/high), cutLeast), cutMost)
	next := max(base-unit.MilliCPU(float64(base)*part), least)
	next += w.take(base - next)
	p.Capped, p.Cap, p.CutAt, p.FloorAt, p.FloorPods, p.FloorSeen = true, next, now, 0, nil, 0
	w.cut = true
	w.note(waits + ": cut from " + figure.Cores(base) + " to " + figure.CPUs(next))
}

// atFloor waits for pressure that BE does not cause to show itself as such: it stands although BE has been at its floor. Only the pods
// that have waited all that time are not listened to afterwards; one that stalls by itself must not hide the others.
func (w *work) atFloor(waits string, who []string) {
	p, now := &w.press, w.in.Now
	still := slices.DeleteFunc(slices.Clone(p.FloorPods), func(pod string) bool { return !slices.Contains(who, pod) })
	p.FloorSeen++
	switch {
	case p.FloorAt == 0, len(p.FloorPods) > 0 && len(still) == 0:
		p.FloorAt, p.FloorPods, p.FloorSeen = now, who, 1
	case now-p.FloorAt >= blameless && p.FloorSeen >= atFloorLeast:
		for _, pod := range still {
			p.Ignored = append(p.Ignored, Ignored{pod, now + ignored})
		}
		if len(still) == 0 {
			p.IgnoreTo = now + ignored
		}
		p.Past = Past{}
		w.lift(waits + " although BE has been at its floor for " + figure.Duration(blameless) + ": BE is not the cause")
		return
	default:
		p.FloorPods = still
	}
	w.note(waits + ": BE is at its floor")
}

// lift ends the cap.
func (w *work) lift(why string) {
	p := &w.press
	*p = PressureState{SeenAt: p.SeenAt, IgnoreTo: p.IgnoreTo, Ignored: p.Ignored, Past: p.Past}
	w.note("pressure cap lifted: " + why)
}

// bounded is what pressure leaves of an amount, whatever the formula allows.
func (w *work) bounded(want unit.MilliCPU) unit.MilliCPU {
	p := &w.press
	if p.Capped {
		return min(want, p.Cap)
	}
	if half := (p.Past.Good + p.Past.Bad) / 2; w.in.Now < p.Past.HoldTo && half < want {
		w.note("held half way up to " + figure.CPUs(p.Past.Bad) + ", at which LS waited again")
		return half
	}
	return want
}

// least is the smallest amount that the policy in force can give.
func (w *work) least() unit.MilliCPU {
	if w.byQuota() {
		return max(w.floor, unit.MilliFromQuota(MinQuota, unit.CFSPeriod))
	}
	return unit.MilliCPU(max(ceilCPUs(w.floor), MinCPUs)) * milliPerCPU
}
