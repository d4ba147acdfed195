// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package suppress

import (
	"strconv"

	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Growth remembers how long more CPUs have been wanted than are granted.
type Growth struct {
	// Wanted is the smallest count above the granted one since Since; 0 when no more was wanted in between.
	Wanted int         `json:"wanted,omitempty"`
	Since  unit.Micros `json:"since,omitempty"`
	// Grown is the last growth.
	Grown unit.Micros `json:"grown,omitempty"`
}

// cpuset decides by policy cpuset.
func (w *work) cpuset() State {
	tiers := w.tiers()
	most := 0
	for _, t := range tiers {
		most += t.Len()
	}
	next := State{Mode: CPUSet, Count: w.s.Count, Grow: w.s.Grow, Press: w.press}
	least := max(ceilCPUs(w.floor), MinCPUs)
	want := next.Count
	if w.s.Mode != CPUSet {
		// A quota was in force and no figure may be at hand: the same amount in CPUs.
		want = int(w.granted() / milliPerCPU)
	}
	if w.allowance.OK {
		want = ceilCPUs(w.allowance.V)
		if want < least {
			w.note("floor of " + figure.CPUs(unit.MilliCPU(least)*milliPerCPU))
		}
	}
	want = max(want, least)
	if most := w.bounded(unit.MilliCPU(want) * milliPerCPU); most < unit.MilliCPU(want)*milliPerCPU {
		want = max(int(most/milliPerCPU), least)
	}
	if want > most {
		want = most
		w.note("only " + figure.Count(most, "CPU") + " may be used")
	}
	if w.starved {
		want = min(MinCPUs, most)
	}
	if w.s.Mode == CPUSet {
		want = max(w.paced(&next.Grow, next.Count, want), min(least, want)) // the floor does not wait
	} else {
		next.Grow = Growth{Grown: w.in.Now}
	}
	next.Count = want
	next.CPUs = choose(w.in.CPUs.Topology, tiers, w.s.CPUs, want)
	if next.CPUs.Overlaps(w.in.CPUs.LSR) && !w.starved {
		w.note("shares " + figure.Count(next.CPUs.Intersect(w.in.CPUs.LSR).Len(), "CPU") + " of LSR pods")
	}
	return next
}

// paced is the count after one step from have towards want: down at once, up as the package comment says.
func (w *work) paced(g *Growth, have, want int) int {
	now := w.in.Now
	if now < max(g.Since, g.Grown) {
		*g = Growth{} // another clock
	}
	if want <= have {
		*g = Growth{Grown: g.Grown}
		return want
	}
	if g.Wanted == 0 {
		g.Wanted, g.Since = want, now
	}
	g.Wanted = min(g.Wanted, want)
	step := max(ceilCPUs(growPercent.Milli(w.capacity)), 1)
	hold := HoldSmall
	if g.Wanted-have >= max(step, MinCPUs) || g.Grown > g.Since {
		hold = Hold // also for the rest of a growth that has begun
	}
	switch {
	case w.in.Urgent:
		return have
	case now-g.Since < hold:
		w.note(strconv.Itoa(want) + " wanted for " + figure.Duration(now-g.Since) + ", grows after " + figure.Duration(hold))
		return have
	case now-g.Grown < growEvery:
		return have
	}
	next := min(g.Wanted, have+step)
	if next == g.Wanted {
		*g = Growth{}
	} else {
		w.note("grows to " + strconv.Itoa(g.Wanted) + " by " + strconv.Itoa(step) + " at a time")
	}
	g.Grown = now
	return next
}

// ceilCPUs is ⌈m⌉ in whole CPUs, 0 for less than nothing.
func ceilCPUs(m unit.MilliCPU) int {
	if m <= 0 {
		return 0
	}
	return int((m-1)/milliPerCPU) + 1
}

// tiers are the CPUs that BE may use, the best first: free ones, free ones beside a CPU of an LSE or LSR pod on the same
// core, those of LSR pods. When there is none at all, the CPUs least bad to share, and starved is set.
func (w *work) tiers() []topo.CPUSet {
	c := &w.in.CPUs
	all := c.Topology.All()
	free := all.MinusAll(c.LSE, c.LSR, c.Reserved, c.SystemExclusive)
	beside := free.Intersect(siblings(c.Topology, c.LSE.Union(c.LSR)))
	tiers := []topo.CPUSet{free.Minus(beside), beside, c.LSR.Intersect(all).MinusAll(c.LSE, c.Reserved, c.SystemExclusive)}
	for _, t := range tiers {
		if !t.Empty() {
			return tiers
		}
	}
	w.starved = true
	for _, last := range []struct {
		set  topo.CPUSet
		what string
	}{
		{all.MinusAll(c.LSE, c.Reserved), "CPUs of SYSTEM pods"},
		{all.Minus(c.LSE), "CPUs reserved for the system"},
		{all, "CPUs of LSE pods"},
	} {
		if !last.set.Empty() {
			w.note("no CPU is left for BE: it shares " + last.what)
			return []topo.CPUSet{last.set}
		}
	}
	return nil
}
