// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package memqos

import (
	"cmp"
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// begin carries a container's state over and judges what the last reclaim brought.
func (w *work) begin(c *Container, s ContainerState) ContainerState {
	if w.in.Now < max(s.DryTo-dryFor, s.LiftAt) { // another clock
		s.DryTo, s.LiftAt = 0, 0
	}
	if c.Got.OK && s.Asked > 0 && c.Got.V < s.Asked/dryPart {
		s.DryTo = w.in.Now + dryFor
	}
	s.Asked = 0
	return s
}

// order ranks the containers as the package comment says.
func (w *work) order() {
	w.ranked = make([]int, len(w.in.Containers))
	for i := range w.ranked {
		w.ranked[i] = i
	}
	over := func(c *Container) unit.Bytes { return c.Used.V - c.Request }
	slices.SortFunc(w.ranked, func(x, y int) int {
		a, b := &w.in.Containers[x], &w.in.Containers[y]
		return cmp.Or(
			cmp.Compare(b.MinAdj, a.MinAdj), cmp.Compare(other(a), other(b)), cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(over(b), over(a)), cmp.Compare(a.ID, b.ID))
	})
}

func other(c *Container) int {
	if c.QoS == protocol.QoSBE {
		return 0
	}
	return 1
}

// spare is what a container can still give in this tick.
func (w *work) spare(i int) unit.Bytes {
	c := &w.in.Containers[i]
	if !c.Used.OK || !w.in.CanReclaim && (!w.in.CanHigh || c.QoS != protocol.QoSBE) {
		return 0
	}
	most := c.Used.V - max(c.Low, keepLeast)
	if c.Reclaimable.OK {
		most = min(most, c.Reclaimable.V)
	}
	return max(min(most-w.given[i], w.budget), 0).PageDown()
}

// unwilling reports that a container gave nothing lately, or pays for giving already.
func (w *work) unwilling(i int) bool {
	c := &w.in.Containers[i]
	limit := stallOther
	if c.QoS == protocol.QoSBE {
		limit = stallBE
	}
	return w.in.Now < w.next[i].DryTo || c.Stall.OK && c.Stall.V >= limit
}

// take takes up to need from a container and returns what it was.
func (w *work) take(i int, need unit.Bytes, why string) unit.Bytes {
	amount := min(need, w.spare(i)).PageDown()
	if amount <= 0 {
		return 0
	}
	w.given[i] += amount
	w.budget -= amount
	if w.why[i] == "" {
		w.why[i] = why
	}
	return amount
}

// marks reclaims containers above their own marks.
func (w *work) marks() {
	for _, i := range w.ranked {
		c, s := &w.in.Containers[i], &w.next[i]
		start, stop, ok := Marks(c)
		if !ok {
			s.Active = false
			continue
		}
		if !c.Used.OK {
			continue
		}
		s.Active = c.Used.V > start || s.Active && c.Used.V > stop
		if s.Active && !w.unwilling(i) {
			w.take(i, c.Used.V-stop+4095, "above its mark of "+figure.Bytes(start)+", down to "+figure.Bytes(stop))
		}
	}
}

// Marks are where a container's reclaim starts and stops; not ok without a ratio, a scale or a limit to take them of.
func Marks(c *Container) (start, stop unit.Bytes, ok bool) {
	base := c.Max
	if c.High > 0 && (base <= 0 || c.High < base) {
		base = c.High
	}
	if base <= 0 || c.WmarkRatio <= 0 || c.WmarkScale <= 0 {
		return 0, 0, false
	}
	start = c.WmarkRatio.Of(base)
	return start, max(start-unit.Percent(c.WmarkScale).Of(base/100), 0), true
}

// booked reclaims BE where it uses too much of what it requests.
func (w *work) booked(next *State) {
	t := &w.in.Strategy
	if t.Enable == nil || !*t.Enable || t.MemoryRequestUtilizationPercent == nil {
		next.Booked = false
		return
	}
	percent := unit.Percent(*t.MemoryRequestUtilizationPercent)
	var used, requested unit.Bytes
	for i := range w.in.Containers {
		c := &w.in.Containers[i]
		if c.QoS != protocol.QoSBE {
			continue
		}
		if !c.Used.OK {
			return // a sum with a hole says nothing
		}
		used, requested = used+c.Used.V, requested+max(c.Request, 0)
	}
	if requested <= 0 {
		next.Booked = false
		return
	}
	back := max(percent-bookedBack, 0).Of(requested)
	next.Booked = used >= percent.Of(requested) || next.Booked && used > back
	if !next.Booked {
		return
	}
	why := "BE uses " + figure.BytesOf(used, requested) + " that it requests; " + figure.Percent(percent.Fraction()) + " is the mark"
	w.spread(used-back, why, func(i int) bool { return w.in.Containers[i].QoS == protocol.QoSBE && !w.unwilling(i) })
	w.reason = why
}

// spread takes need from the containers in order; what they already give in this tick counts.
func (w *work) spread(need unit.Bytes, why string, may func(int) bool) (taken unit.Bytes) {
	for _, i := range w.ranked {
		if may(i) {
			taken += w.given[i]
		}
	}
	for _, i := range w.ranked {
		if taken >= need {
			break
		}
		if may(i) {
			taken += w.take(i, need-taken, why)
		}
	}
	return taken
}
