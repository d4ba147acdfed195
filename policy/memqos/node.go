// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package memqos

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// threshold is the eviction mark that everything below it is measured from; not ok when evictions are off.
func (w *work) threshold() (unit.Percent, bool) {
	t := &w.in.Strategy
	if t.Enable == nil || !*t.Enable || t.MemoryEvictThresholdPercent == nil || w.in.Capacity <= 0 {
		return 0, false
	}
	return unit.Percent(*t.MemoryEvictThresholdPercent), true
}

// node moves the pressure, the one place where it changes.
func (w *work) node(next *State) {
	threshold, ok := w.threshold()
	if !ok {
		next.Pressure, next.TightAt = Calm, 0
		return
	}
	above := func(points unit.Percent) bool {
		return w.in.Used.OK && w.in.Used.V > max(threshold-points, 0).Of(w.in.Capacity)
	}
	switch {
	case !w.in.Used.OK: // the state stays
	case above(tightPoints), next.Pressure == Tight && above(nearPoints):
		next.Pressure = Tight
	case above(nearPoints), next.Pressure != Calm && above(calmPoints):
		next.Pressure = Near
	default:
		next.Pressure = Calm
	}
	switch {
	case next.Pressure != Tight:
		next.TightAt = 0
	case next.TightAt == 0 || next.TightAt > w.in.Now: // or another clock
		next.TightAt = w.in.Now
	}
	w.squeeze = next.Pressure == Tight && (w.in.Now-next.TightAt < squeezeFor || above(0))
}

// relieve reclaims for the node and holds BE where it is.
func (w *work) relieve(next *State) {
	threshold, ok := w.threshold()
	for i := range w.next {
		w.hold(i)
	}
	if !ok || next.Pressure == Calm || !w.in.Used.OK {
		return
	}
	how, tight := " is near the eviction threshold of ", w.squeeze
	switch {
	case tight:
		how = " is close below, or above, the eviction threshold of "
	case next.Pressure == Tight:
		how = " rests close below the eviction threshold, and nobody is held any more, of "
	}
	why := "node memory " + figure.BytesOf(w.in.Used.V, w.in.Capacity) + how + figure.Percent(threshold.Fraction())
	need := w.in.Used.V - max(threshold-calmPoints, 0).Of(w.in.Capacity)
	taken := w.spread(need, why, func(i int) bool {
		be := w.in.Containers[i].QoS == protocol.QoSBE
		return be && (tight || !w.unwilling(i)) && w.in.Now >= w.next[i].DryTo || !be && tight && !w.unwilling(i)
	})
	w.forNode = taken > 0
	w.reason = why + ": reclaims " + figure.Bytes(taken) + " of " + figure.Bytes(need)
}

// hold keeps a BE container of a tight node at what it has; the value only falls while it lasts.
func (w *work) hold(i int) {
	c, s := &w.in.Containers[i], &w.next[i]
	if !w.squeeze || c.QoS != protocol.QoSBE || !w.in.CanHigh {
		s.Held = 0
		return
	}
	if !c.Used.OK {
		return
	}
	// What was reclaimed is not to be grown into; who only wavers is not written to in each tick.
	most := max(c.Used.V, c.Low, keepLeast).PageDown()
	if s.Held == 0 || most < s.Held-s.Held/holdBand {
		s.Held = most
	}
}

// high is the memory.high of a container where it differs from its own.
func (w *work) high(i int) (High, bool) {
	c, s := &w.in.Containers[i], &w.next[i]
	switch own := c.own(); {
	case s.Cap > 0 && (own <= 0 || s.Cap < own) && (s.Held == 0 || s.Cap < s.Held):
		return High{c.ID, c.Pod, s.Cap, true, capWhy(s.Told)}, true
	case s.Held > 0 && (own <= 0 || s.Held < own):
		return High{c.ID, c.Pod, s.Held, true, "the node's memory is tight: no more than it has"}, true
	case s.Lift > 0 && w.in.CanHigh && c.High > 0 && c.Max > c.High:
		value := (c.High + unit.Bytes(float64(c.Max-c.High)*float64(s.Lift))).PageDown()
		return High{c.ID, c.Pod, value, false, "tuned: it stalled at its memory.high of " + figure.Bytes(c.High) + " on a calm node"}, true
	}
	return High{}, false
}

// own is the bound that a container has without this loop, 0 for none.
func (c *Container) own() unit.Bytes {
	if c.High > 0 && (c.Max <= 0 || c.High < c.Max) {
		return c.High
	}
	return c.Max
}

// Figures of tuning.
const (
	liftStep  = unit.Fraction(0.25)
	liftEvery = 10 * unit.Second
	dropEvery = unit.Minute
	// liftStall is the memory pressure at memory.high that asks for room.
	liftStall = unit.Fraction(0.1)
)

// tune moves the lift of one container: up by a quarter while it stalls near its memory.high and the node is calm, down by
// one when it has kept below for a minute, to nothing where it does not apply or the node is not calm (BE).
func (w *work) tune(i int, pressure Pressure) {
	c, s := &w.in.Containers[i], &w.next[i]
	if !w.in.Tune || !w.in.CanHigh || s.Cap > 0 || c.High <= 0 || c.Max <= c.High || pressure != Calm && c.QoS == protocol.QoSBE {
		s.Lift, s.LiftAt = 0, 0
		return
	}
	if !c.Used.OK || !c.Stall.OK {
		return
	}
	bound := c.High + unit.Bytes(float64(c.Max-c.High)*float64(s.Lift))
	now := w.in.Now
	switch {
	case c.Stall.V >= liftStall && c.Used.V >= bound/20*19 && pressure == Calm && w.in.Used.OK:
		if s.Lift < 1 && (s.LiftAt == 0 || now-s.LiftAt >= liftEvery) {
			s.Lift, s.LiftAt = min(s.Lift+liftStep, 1), now
		}
	case c.Used.V > c.High/10*9:
		if s.Lift > 0 {
			s.LiftAt = now // still needs it
		}
	case s.Lift > 0 && now-s.LiftAt >= dropEvery:
		s.Lift, s.LiftAt = max(s.Lift-liftStep, 0), now
	}
	if s.Lift == 0 {
		s.LiftAt = 0
	}
}
