// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"github.com/koord-rt/koord-rt/api/protocol"
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
		r.unknown(CPUEvict, "the node's CPU use was not measured for long enough")
		return
	}
	threshold := unit.Percent(*thr)
	lower := lowerOf(threshold, r.t.CPUEvictLowerPercent)
	state := "node CPU use " + figure.CoresOf(c.Used.V, c.Capacity) + " on average"
	used, limit := c.Used.V, figure.Percent(threshold.Fraction())
	if c.UsedNow.OK {
		used = min(used, c.UsedNow.V)
	}
	u := &rule[unit.MilliCPU]{feature: CPUEvict, need: used - lower.Milli(c.Capacity), belongs: below(*most), counts: anyone, gives: ofCPU.used}
	switch {
	case c.Used.V < threshold.Milli(c.Capacity):
		ofCPU.calm(r, u, state+" is below "+limit)
	case used < threshold.Milli(c.Capacity):
		ofCPU.calm(r, u, state+", and "+figure.CoresOf(used, c.Capacity)+" now, which is below "+limit)
	default:
		u.cause = state + " has reached " + limit + ", down to " + figure.Percent(lower.Fraction())
		ofCPU.run(r, u)
	}
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
		r.unknown(BECPUEvict, "CPU pressure or use of the BE pods was not measured for long enough")
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
		feature: BECPUEvict, need: max(need, 1), belongs: be, counts: be, gives: ofCPU.used,
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
	missing := shortage{why: "no decision: the BE pods' CPU was not measured for long enough"}
	if r.covered() {
		missing = r.missingCPU(&r.in.CPU.Average, lower, upper, usage)
	}
	if missing.need > 0 {
		missing = missing.alsoNow(r.missingCPU(&r.in.CPU.Current, lower, upper, usage))
	}
	u := &rule[unit.MilliCPU]{
		feature: BECPUEvict, need: missing.need, cause: also(limited, missing.why), limited: limited, belongs: be, counts: be,
		// Pods of the mid band request no batch-cpu, of which the tier's request is made.
		gives: func(p *Pod) (unit.MilliCPU, bool) { return p.CPURequest, p.Band != protocol.PriorityMid },
		greed: func(p *Pod) float64 { return float64(unit.Part(p.CPUUsed.V, p.CPURequest)) },
	}
	switch {
	case !missing.ok:
		r.out.Decisions = append(r.out.Decisions, Decision{Feature: BECPUEvict, Rest: Unknown, Reason: u.cause, Limited: limited})
	case !missing.over || missing.need <= 0:
		ofCPU.calm(r, u, u.cause)
	default:
		ofCPU.run(r, u)
	}
}

// shortage is what requests must shrink by for the tier to be satisfied up to the upper mark, and whether it is not up to the lower one: over.
// It is not ok when that cannot be told.
type shortage struct {
	need     unit.MilliCPU
	over, ok bool
	why      string
}

// alsoNow is what holds on average and now: the smaller of both.
func (s shortage) alsoNow(now shortage) shortage {
	switch {
	case s.over && (!now.over || now.need < s.need):
		now.need = min(now.need, s.need)
		return now
	case !s.over && now.ok:
		s.need = min(s.need, now.need)
	}
	return s
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

// missingCPU is what the tier lacks, with the figures. One that does not use what it has lacks nothing.
func (r *round) missingCPU(tier *Tier, lower, upper, usage unit.Percent) shortage {
	limit, what := tier.Limit, "limit"
	if r.t.CPUEvictPolicy != nil && *r.t.CPUEvictPolicy == strategy.EvictByAllocatable {
		limit, what = r.in.CPU.BatchAllocatable, "allocatable"
	}
	if !limit.OK || !tier.Used.OK || !tier.Request.OK || tier.Request.V <= 0 || limit.V < 0 {
		return shortage{why: "no decision: CPU of the BE pods is not known"}
	}
	satisfaction := unit.Part(limit.V, tier.Request.V)
	state := "BE pods request " + figure.CPUs(tier.Request.V) + ", " + what + " " + figure.Cores(limit.V) + " (" + figure.Percent(satisfaction) +
		"), use " + figure.Cores(tier.Used.V)
	out := shortage{need: upper.Milli(tier.Request.V) - limit.V, over: limit.V <= lower.Milli(tier.Request.V), ok: true}
	idle := limit.V >= smallLimit && tier.Used.V < usage.Milli(limit.V)
	switch {
	case !out.over:
		out.why = state + ": satisfaction is above " + figure.Percent(lower.Fraction())
	case idle:
		out.why = state + ": they use less than " + figure.Percent(usage.Fraction()) + " of it"
	default:
		out.why = state + ": satisfaction is at most " + figure.Percent(lower.Fraction()) + ", up to " + figure.Percent(upper.Fraction())
	}
	if idle {
		out.need, out.over = 0, false
	}
	return out
}
