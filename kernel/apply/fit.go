// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"context"
	"fmt"
	"strings"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// fit bounds a value by what the kernel accepts beside and above it right now, and by what the plan is about to make of
// the levels above.
func (a *session) fit(ctx context.Context, p plan.Plan, t *target, s plan.Setting, st step, r *Result, gen uint64) (plan.Setting, error) {
	if st.union {
		return widened(s, r.Before), nil
	}
	fitted, note, err := a.fs.Fit(s)
	if err != nil {
		return s, err
	}
	if planned, why := a.fitPlan(p, fitted); why != "" {
		fitted, note = planned, why
	}
	switch s.Knob {
	case plan.CPUQuota:
		err = a.lowerBurst(ctx, t, fitted, gen)
	case plan.CPUBurst:
		if st.phase != phaseRelease { // the quota holds the larger one that stands
			fitted, note, err = a.fitBurst(fitted)
		}
	}
	if r.Note = note; note != "" {
		fitted.Reason += " (" + note + ")"
	}
	return fitted, err
}

// fitPlan cuts a nested value to what the same plan gives an ancestor: shrinking goes from the inside out, so the
// ancestor's present value is still larger.
func (a *session) fitPlan(p plan.Plan, s plan.Setting) (plan.Setting, string) {
	if !a.fs.Nested(s.Knob) {
		return s, ""
	}
	note := ""
	for i := range p {
		up := &p[i]
		if up.Knob != s.Knob || up.Observe || !strings.HasPrefix(s.Target.Cgroup, strings.TrimRight(up.Target.Cgroup, "/")+"/") {
			continue
		}
		cut := a.within(p, s, up)
		if cut != s.Value {
			note = fmt.Sprintf("cut from %s to %s: the plan gives %s %s", s.Value, cut, up.Target, up.Value)
			s.Value = cut
		}
	}
	return s, note
}

// within is the part of a value that an ancestor's has room for; the value itself when that is nothing, so that the
// kernel's own refusal is reported.
func (a *session) within(p plan.Plan, s plan.Setting, up *plan.Setting) plan.Value {
	if s.Knob == plan.CPUQuota {
		outer := a.period(p, up.Target)
		if s.Value.Int() == unit.Unlimited || up.Value.Int() == unit.Unlimited || outer <= 0 {
			return s.Value
		}
		most := up.Value.Int() * a.period(p, s.Target) / outer
		return plan.Int(max(min(s.Value.Int(), most), int64(unit.MinQuota)))
	}
	want, err1 := topo.ParseCPUSet(s.Value.String())
	outer, err2 := topo.ParseCPUSet(up.Value.String())
	if err1 != nil || err2 != nil || want.SubsetOf(outer) || !want.Overlaps(outer) {
		return s.Value
	}
	return plan.Text(want.Intersect(outer).String())
}

// period is the one that the plan wants, else the kernel's.
func (a *session) period(p plan.Plan, t plan.Target) int64 {
	if s := p.Find(t, plan.CPUPeriod, ""); s != nil && !s.Observe {
		return s.Value.Int()
	}
	v, err := a.fs.Read(plan.ID{Target: t, Knob: plan.CPUPeriod})
	if err != nil {
		return 0
	}
	return v.Int()
}

// widened is the union of the wanted list and the present one.
func widened(s plan.Setting, before plan.Value) plan.Setting {
	want, err1 := topo.ParseCPUSet(s.Value.String())
	have, err2 := topo.ParseCPUSet(before.String())
	if err1 == nil && err2 == nil {
		s.Value = plan.Text(want.Union(have).String())
		s.Reason += " (widened until the levels below have moved)"
	}
	return s
}

// lowerBurst makes way for a quota below the kernel's burst, which would be EINVAL. The write is the quota's: same owner.
func (a *session) lowerBurst(ctx context.Context, t *target, s plan.Setting, gen uint64) error {
	if s.Value.Int() == unit.Unlimited {
		return nil
	}
	b := s
	b.Knob, b.Value = plan.CPUBurst, s.Value
	have, err := a.fs.Read(b.ID())
	if err != nil || have.Int() <= s.Value.Int() {
		return nil //nolint:nilerr // a kernel without burst has nothing to lower
	}
	b.Reason = "burst must not exceed the quota: " + s.Reason
	c, err := a.fs.Prepare(b)
	if err != nil {
		return err
	}
	var r Result
	a.commit(ctx, nil, t, b, c, &r, gen)
	return r.Err
}

// fitBurst cuts a burst to the quota that is in force.
func (a *session) fitBurst(s plan.Setting) (plan.Setting, string, error) {
	id := s.ID()
	id.Knob = plan.CPUQuota
	quota, err := a.fs.Read(id)
	if err != nil {
		return s, "", err
	}
	if quota.Int() == unit.Unlimited || s.Value.Int() <= quota.Int() {
		return s, "", nil
	}
	note := fmt.Sprintf("cut from %s to the quota, %s µs", s.Value, quota)
	s.Value = quota
	return s, note, nil
}
