// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"cmp"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// phase orders the writes of a whole plan. A quota may not fall below the burst (EINVAL), so bursts fall first and rise
// last; a shorter period raises the share of a CPU, so it comes after the quota and a longer one before (but see placePeriods); cpu.weight cannot be written while cpu.idle is 1, so idle is cleared first and set last. Between them values that
// children may not exceed grow from the outside in and shrink from the inside out; the same order raises a protection
// on every ancestor before the cgroup that it protects.
type phase uint8

const (
	phaseRelease phase = iota
	phaseGrow
	phaseShrink
	phaseTighten
)

// step is one write of one setting. A list that moves (0-1 → 2-3) above another moving list takes two steps: first the
// union, then the final one, so that no child ever lies outside its parent.
type step struct {
	index int
	phase phase
	depth int
	knob  plan.Knob
	union bool
}

func (a *Applier) appendSteps(steps []step, index int, s plan.Setting, d cgroup.Direction) []step {
	st := step{index: index, phase: phaseGrow, depth: strings.Count(s.Target.Cgroup, "/"), knob: s.Knob}
	switch {
	case s.Knob == plan.CPUBurst || s.Knob == plan.CPUIdle || s.Knob == plan.CPUPeriod:
		st.phase = phaseTighten
		if d == cgroup.Shrink {
			st.phase = phaseRelease
		}
	case d == cgroup.Shrink:
		st.phase = phaseShrink
	case d == cgroup.Move && a.o.FS.Nested(s.Knob):
		wide := st
		wide.union = true
		st.phase = phaseShrink
		return append(steps, wide, st)
	}
	return append(steps, st)
}

func byOrder(x, y step) int {
	depth := cmp.Compare(x.depth, y.depth)
	if x.phase == phaseShrink || x.phase == phaseRelease {
		depth = -depth
	}
	return cmp.Or(cmp.Compare(x.phase, y.phase), depth, cmp.Compare(x.knob, y.knob))
}

// placePeriods orders a period and a quota of one cgroup that change together. Where the plan takes the quota away the period comes after it,
// where it gives the first one before: no share of a CPU stands between that is neither the old nor the new. Where both have a limit, that
// write of a pod's comes first which makes its share larger: cgroup v1 refuses a parent whose share is smaller than a child's.
func (a *Applier) placePeriods(steps []step, p plan.Plan) {
	for i := range steps {
		if steps[i].knob != plan.CPUPeriod {
			continue
		}
		id := p[steps[i].index].ID()
		id.Knob = plan.CPUQuota
		if !slices.ContainsFunc(steps, func(st step) bool { return p[st.index].ID() == id }) {
			continue
		}
		now, err := a.o.FS.Read(id)
		quota := p.Find(id.Target, id.Knob, "")
		if err != nil || quota == nil {
			continue
		}
		switch want := quota.Value.Int(); {
		case want == unit.Unlimited:
			steps[i].phase = phaseTighten
		case now.Int() == unit.Unlimited:
			steps[i].phase = phaseRelease
		case id.Target.Level == plan.LevelPod && want > now.Int():
			steps[i].phase = phaseTighten
		case id.Target.Level == plan.LevelPod:
			steps[i].phase = phaseRelease
		}
	}
}

// pruneUnions drops the widening step of lists below which nothing else of the plan moves.
func pruneUnions(steps []step, p plan.Plan) []step {
	kept := steps[:0]
	for _, st := range steps {
		if !st.union || hasDescendant(p, st.index) {
			kept = append(kept, st)
		}
	}
	return kept
}

func hasDescendant(p plan.Plan, i int) bool {
	for j := range p {
		if p[j].Knob == p[i].Knob && strings.HasPrefix(p[j].Target.Cgroup, strings.TrimRight(p[i].Target.Cgroup, "/")+"/") {
			return true
		}
	}
	return false
}
