// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Percentages of the satisfaction rule when it stands in for pressure and the strategy has none.
const (
	standInLower = unit.Percent(60)
	standInUpper = unit.Percent(80)
)

// smallLimit counts as used up whatever its use: with less than one CPU for all BE pods use/limit says little.
const smallLimit = unit.MilliCPU(1000)

// cpuUsage is CPUEvict: the node's CPU use against the thresholds.
func (r *round) cpuUsage() {
	most, thr := r.t.EvictEnabledPriorityThreshold, r.t.CPUEvictThresholdPercent
	if !r.has(CPUEvict) || most == nil || thr == nil {
		return
	}
	c := &r.in.CPU
	if !c.Used.OK || c.Capacity <= 0 || !r.covered() {
		r.quiet(CPUEvict, "no decision: the node's CPU use was not measured for long enough")
		return
	}
	threshold := unit.Percent(*thr)
	lower := lowerOf(threshold, r.t.CPUEvictLowerPercent)
	state := "node CPU use " + figure.CoresOf(c.Used.V, c.Capacity) + " on average"
	if c.Used.V < threshold.Milli(c.Capacity) {
		r.quiet(CPUEvict, state+" is below "+figure.Percent(threshold.Fraction()))
		return
	}
	used := c.Used.V
	if c.UsedNow.OK && c.UsedNow.V < used {
		if used = c.UsedNow.V; used < threshold.Milli(c.Capacity) {
			r.quiet(CPUEvict, state+", and "+figure.CoresOf(used, c.Capacity)+" now, which is below "+figure.Percent(threshold.Fraction()))
			return
		}
	}
	ofCPU.run(r, &rule[unit.MilliCPU]{
		feature: CPUEvict, need: used - lower.Milli(c.Capacity), belongs: below(*most), anyone: true,
		cause: state + " has reached " + figure.Percent(threshold.Fraction()) + ", down to " + figure.Percent(lower.Fraction()),
		gives: ofCPU.used,
	})
}

// covered reports that the window has samples for at least a third of it.
func (r *round) covered() bool {
	window := r.t.CPUEvictTimeWindowSeconds
	return window == nil || r.in.CPU.Covered >= unit.Micros(min(*window, 1<<30))*unit.Second/3
}

// waiting is BECPUEvict by CPU pressure of the BE tier.
func (r *round) waiting() {
	thr, c := r.t.CPUEvictPSIThresholdPercent, &r.in.CPU
	if !r.has(BECPUEvict) || thr == nil || c.NoPressure {
		return
	}
	limit := unit.Percent(*thr).Fraction()
	if !c.Pressure.OK || !c.Average.Used.OK || !r.covered() {
		r.quiet(BECPUEvict, "no decision: CPU pressure or use of the BE pods was not measured for long enough")
		return
	}
	state := "BE pods wait for a CPU " + figure.Percent(c.Pressure.V) + " of the time on average"
	if c.Pressure.V <= limit {
		r.quiet(BECPUEvict, state+", not above "+figure.Percent(limit))
		return
	}
	pressure := c.Pressure.V
	if c.PressureNow.OK && c.PressureNow.V < pressure {
		if pressure = c.PressureNow.V; pressure <= limit {
			r.quiet(BECPUEvict, state+", and "+figure.Percent(pressure)+" now, not above "+figure.Percent(limit))
			return
		}
	}
	need := unit.MilliCPU(float64(c.Average.Used.V) * (1 - float64(limit/pressure)))
	ofCPU.run(r, &rule[unit.MilliCPU]{
		feature: BECPUEvict, need: max(need, 1), belongs: be, gives: ofCPU.used,
		cause: state + ", above " + figure.Percent(limit) + ", and use " + figure.CPUs(c.Average.Used.V),
	})
}

// starved is BECPUEvict by satisfaction, also where it stands in for pressure that the kernel does not tell.
func (r *round) starved() {
	if !r.has(BECPUEvict) {
		return
	}
	lower, upper, usage, limited, ok := r.satisfactionMarks()
	if !ok {
		return
	}
	quiet := func(why string) {
		r.out.Decisions = append(r.out.Decisions, Decision{Feature: BECPUEvict, Reason: also(limited, why), Limited: limited})
	}
	if !r.covered() {
		quiet("no decision: the BE pods' CPU was not measured for long enough")
		return
	}
	average, why, ok := r.missingCPU(&r.in.CPU.Average, lower, upper, usage)
	if ok && average > 0 {
		var now unit.MilliCPU
		var current string
		if now, current, ok = r.missingCPU(&r.in.CPU.Current, lower, upper, usage); now < average {
			average, why = now, current
		}
	}
	if !ok || average <= 0 {
		quiet(why)
		return
	}
	ofCPU.run(r, &rule[unit.MilliCPU]{
		feature: BECPUEvict, need: average, cause: also(limited, why), limited: limited, belongs: be, gives: ofCPU.requested,
		greed: func(p *Pod) float64 { return float64(unit.Part(p.CPUUsed.V, p.CPURequest)) },
	})
}

// standsIn is what people are told where satisfaction stands in for pressure.
const standsIn = "this kernel tells no CPU pressure of the BE pods, their satisfaction stands in"

// also puts what limits a decision before its reason.
func also(limited, reason string) string {
	if limited == "" {
		return reason
	}
	return limited + ": " + reason
}

// satisfactionMarks are the percentages of the rule, and what it stands in for; not ok when the strategy does not ask for it.
func (r *round) satisfactionMarks() (lower, upper, usage unit.Percent, limited string, ok bool) {
	t := r.t
	if t.CPUEvictBEUsageThresholdPercent != nil {
		usage = unit.Percent(*t.CPUEvictBEUsageThresholdPercent)
	}
	standIn := t.CPUEvictPSIThresholdPercent != nil && r.in.CPU.NoPressure
	if standIn {
		lower, upper, usage, limited = standInLower, standInUpper, unit.Percent(*t.CPUEvictPSIThresholdPercent), standsIn
	}
	if t.CPUEvictBESatisfactionLowerPercent != nil && t.CPUEvictBESatisfactionUpperPercent != nil {
		lower, upper = unit.Percent(*t.CPUEvictBESatisfactionLowerPercent), unit.Percent(*t.CPUEvictBESatisfactionUpperPercent)
	} else if !standIn {
		return 0, 0, 0, "", false
	}
	return lower, upper, usage, limited, lower > 0 && lower < upper
}

// missingCPU is what requests must shrink by for the tier to be satisfied; 0 with a reason when it is, not ok when it
// cannot be told.
func (r *round) missingCPU(tier *Tier, lower, upper, usage unit.Percent) (unit.MilliCPU, string, bool) {
	limit, what := tier.Limit, "limit"
	if r.t.CPUEvictPolicy != nil && *r.t.CPUEvictPolicy == strategy.EvictByAllocatable {
		limit, what = r.in.CPU.BatchAllocatable, "allocatable"
	}
	if !limit.OK || !tier.Used.OK || !tier.Request.OK || tier.Request.V <= 0 || limit.V < 0 {
		return 0, "no decision: CPU of the BE pods is not known", false
	}
	satisfaction := unit.Part(limit.V, tier.Request.V)
	state := "BE pods request " + figure.CPUs(tier.Request.V) + ", " + what + " " + figure.Cores(limit.V) + " (" + figure.Percent(satisfaction) +
		"), use " + figure.Cores(tier.Used.V)
	switch {
	case limit.V > lower.Milli(tier.Request.V):
		return 0, state + ": satisfaction is above " + figure.Percent(lower.Fraction()), true
	case limit.V >= smallLimit && tier.Used.V < usage.Milli(limit.V):
		return 0, state + ": they use less than " + figure.Percent(usage.Fraction()) + " of it", true
	}
	state += ": satisfaction is at most " + figure.Percent(lower.Fraction()) + ", up to " + figure.Percent(upper.Fraction())
	return upper.Milli(tier.Request.V) - limit.V, state, true
}
