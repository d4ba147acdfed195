// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package burst

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Figures of tuning.
const (
	// tunePercent is the ceiling without policy, tuneThrottled and tuneAfter how hard and how long a container must have
	// been throttled.
	tunePercent   = unit.Percent(150)
	tuneThrottled = unit.Fraction(0.1)
	tuneAfter     = unit.Minute
)

// wish is the policy for one pod.
type wish struct {
	// on: the policy raises quotas; tune: only tuning does.
	on, tune bool
	percent  unit.Percent
	// seconds of the bucket, negative for none.
	seconds int64
	capped  bool
}

// wishOf overlays the node's strategy by the annotation, field by field.
func wishOf(in *Input, p *Pod) wish {
	switch p.QoS {
	case protocol.QoSLSE, protocol.QoSLSR, protocol.QoSBE:
		return wish{}
	}
	s := &in.Strategy
	policy, percent, seconds := s.Policy, s.CFSQuotaBurstPercent, s.CFSQuotaBurstPeriodSeconds
	w := wish{seconds: -1, tune: in.Tune}
	if a := p.Ask; a != nil {
		if a.Policy != nil {
			policy, w.tune = a.Policy, w.tune && Raises(*a.Policy) // who says none, or the burst only, means his quota
		}
		if a.CFSQuotaBurstPercent != nil {
			percent = a.CFSQuotaBurstPercent
			if most := int64(in.PercentMax); most > 0 && *percent > most {
				percent, w.capped = &most, true
			}
		}
		if a.CFSQuotaBurstPeriodSeconds != nil {
			seconds = a.CFSQuotaBurstPeriodSeconds
		}
	}
	if policy != nil && percent != nil && *percent > 100 && Raises(*policy) {
		w.on, w.percent = true, unit.Percent(*percent)
		if seconds != nil {
			w.seconds = *seconds
		}
	} else {
		w.percent = tunePercent
	}
	return w
}

// Raises reports whether a policy raises quotas.
func Raises(policy string) bool {
	return policy == strategy.BurstAuto || policy == strategy.BurstCFSQuotaOnly
}

// rise is what a container asks its factor to rise by, while it has at the place in the state.
type rise struct {
	at   int
	by   unit.Fraction
	base unit.Micros
	why  string
}

// lift gives those who ask what there is room for: all that they ask, or each the same part. It reports whether anybody got something.
func (s *State) lift(now unit.Micros, rises []rise, room unit.MilliCPU) (changed bool) {
	var asked float64
	for i := range rises {
		asked += float64(rises[i].by) * float64(unit.MilliFromQuota(rises[i].base, unit.CFSPeriod))
	}
	part := unit.Fraction(1)
	if asked > float64(room) {
		part = unit.Fraction(float64(room) / asked)
	}
	for i := range rises {
		r := &rises[i]
		if part < 1 {
			r.why += ", as far as the pool has room"
		}
		c := &s.Containers[r.at]
		c.Factor, c.StepAt, c.Reason, changed = c.Factor+r.by*part, now, r.why, true
	}
	return changed
}

// stepContainer decides one container, but for what it asks to rise by; keep says that its state is worth keeping.
func stepContainer(in *Input, p *Pod, c *Container, s ContainerState, pool Load) (next ContainerState, up rise, keep bool) {
	w := wishOf(in, p)
	if !w.on && !w.tune || c.Base <= 0 {
		return ContainerState{ID: c.ID, Factor: 1, Capacity: -1}, up, false
	}
	if in.Now < max(s.At, s.StepAt, s.HardSince, s.NeededAt) { // another clock: only the factor is worth anything
		s = ContainerState{ID: s.ID, Factor: s.Factor, Capacity: -1, At: in.Now, Reason: s.Reason}
	}
	denied := s.spend(in.Now, c, &w)
	stop := stopOf(p, c, s.Factor)
	s.needs(in.Now, p, c, &stop)
	seen := func(at unit.Micros) bool { return at == 0 || at > s.StepAt }
	if s.StepAt != 0 && in.Now-s.StepAt < stepEvery {
		return s, up, true
	}
	ceiling := w.percent.Fraction()
	was := s.Factor
	switch {
	case denied:
		s.move(in.Now, downBy, ceiling, "its burst tokens are spent")
	case pool == Overload && seen(in.Pool.At):
		s.move(in.Now, downBy, ceiling, "the share pool is overloaded")
	case stop.throttled() && pool == Idle && seen(stop.at) && c.Used.OK && (w.on || s.hard(in.Now)):
		if next := min(s.Factor*upBy, ceiling); next > s.Factor { // else there is nothing to say
			up = rise{by: next - s.Factor, base: c.Base, why: s.because(in.Now, &stop, &w)}
		}
	case s.Factor > 1 && s.NeededAt != 0 && in.Now-s.NeededAt >= unneeded:
		s.move(in.Now, downBy, ceiling, "not throttled for "+figure.Duration(in.Now-s.NeededAt))
	}
	// A lower percentage, or tuning after a policy, bounds what was raised before.
	if s.Factor > ceiling {
		s.move(in.Now, 1, ceiling, "held at "+figure.Percent(ceiling))
	}
	if s.Factor != was {
		s.StepAt = in.Now
	}
	return s, up, true
}

// stop is how a container is throttled.
type stop struct {
	part unit.Measured[unit.Fraction]
	at   unit.Micros
	// whose periods part is of.
	whose string
}

func (t *stop) throttled() bool { return t.part.OK && t.part.V >= throttledLeast }

// stopOf is how a container of this factor is throttled: by its own quota or, where it uses that up, by its pod's, whichever is worse. Both
// quotas run dry at about the same time, since the pod's is the sum of its containers' and the kernel refills each at a moment of its own
// (kernel/sched/fair.c, init_cfs_bandwidth); throttled is only who was first. When that was the pod the container has something left, which
// its burst keeps for the next period: it may not come to its own limit for minutes.
func stopOf(p *Pod, c *Container, factor unit.Fraction) stop {
	own := stop{c.Throttled, c.At, "its periods"}
	all := float64(factor) * float64(unit.MilliFromQuota(c.Base, unit.CFSPeriod))
	if full := c.Used.OK && float64(c.Used.V) >= fullPart*all; full && p.Throttled.OK && (!own.part.OK || p.Throttled.V > own.part.V) {
		return stop{p.Throttled, p.At, "its pod's periods"}
	}
	return own
}

// because says why a throttled container gets room.
func (s *ContainerState) because(now unit.Micros, t *stop, w *wish) string {
	how := figure.Percent(t.part.V) + " of " + t.whose
	why := "throttled in " + how + " while the share pool is idle"
	if !w.on {
		why = "tuned: throttled for " + figure.Duration(now-s.HardSince) + ", now in " + how + ", on a healthy node"
	}
	if w.capped {
		why += ", capped by the node"
	}
	return why
}

// move multiplies the factor within 1 … ceiling.
func (s *ContainerState) move(now unit.Micros, by float64, ceiling unit.Fraction, why string) {
	f := min(max(s.Factor*unit.Fraction(by), 1), max(ceiling, 1))
	if f != s.Factor {
		s.Factor, s.StepAt, s.Reason = f, now, why
	}
}

// needs notes throttling, and use of the room.
func (s *ContainerState) needs(now unit.Micros, p *Pod, c *Container, t *stop) {
	uses := c.Used.OK && c.Used.V >= unit.MilliFromQuota(c.Base, unit.CFSPeriod)
	if t.throttled() || uses || s.NeededAt == 0 {
		s.NeededAt = now
	}
	switch {
	case p.Throttled.OK && p.Throttled.V >= tuneThrottled && s.HardSince != 0:
		// It goes on, though a second in which it used less than all does not show it.
	case !t.part.OK || t.part.V < tuneThrottled && s.Factor <= 1:
		s.HardSince = 0
	case t.part.V >= tuneThrottled && s.HardSince == 0:
		s.HardSince = now
	}
}

// hard says that it has been throttled hard for long enough to be tuned.
func (s *ContainerState) hard(now unit.Micros) bool {
	return s.HardSince != 0 && now-s.HardSince >= tuneAfter
}

// spend moves the bucket to now and reports whether it denies a burst. A bucket that changes its size, or was not looked
// at for two periods, begins anew at a quarter.
func (s *ContainerState) spend(now unit.Micros, c *Container, w *wish) (denied bool) {
	last := s.At
	s.At = now
	if !w.on || w.seconds < 0 {
		s.Capacity, s.Tokens = -1, 0
		return false
	}
	size := float64(w.seconds) * float64(max(w.percent-100, 0))
	elapsed := now - last
	if s.Capacity != size || last == 0 || elapsed.Seconds() > 2*float64(w.seconds) {
		s.Capacity, s.Tokens = size, size/4
		return s.Tokens <= 0
	}
	if limit := unit.MilliFromQuota(c.Base, unit.CFSPeriod); c.Used.OK && limit > 0 {
		p := float64(unit.Part(c.Used.V, limit)) * 100
		if p >= 100 || p < 60 {
			s.Tokens += (100 - p) * elapsed.Seconds()
		}
		s.Tokens = min(max(s.Tokens, -size), size)
	}
	return s.Tokens <= 0
}
