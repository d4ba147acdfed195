// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package mark makes and reads the note that each container changed by us carries (protocol.Applied): what was set, by
// whom, and what stood there before.
//
// Inputs are a plan and the resources that were asked for; outputs are protocol.Applied, its text, and resources with our
// values taken out again. Every adapter writes and reads the same note, so whichever of them comes second knows what the
// first has done. It imports model/plan, model/unit, model/workload and api/protocol.
package mark

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// specOnlyKnobs exist in a specification only.
const specOnlyKnobs = plan.Knobs(1<<plan.Env | 1<<plan.Device | 1<<plan.CDIDevice | 1<<plan.Mount)

// SpecOnly reports whether the knob exists in a container's specification and nowhere in the kernel.
func SpecOnly(k plan.Knob) bool { return specOnlyKnobs.Has(k) }

// By says who writes a mark. Generation is that of the writer's own View: it orders the marks of one process and says
// nothing between two.
type By struct {
	Generation       uint64
	Program, Version string
}

// Of says what the plan changes on a container whose requested resources are base: nil when nothing changes. keeps
// reports whether the writer's way of changing a specification carries the setting.
func Of(by By, p plan.Plan, base *workload.Resources, keeps func(*plan.Setting) bool) *protocol.Applied {
	var m *protocol.Applied
	for i := range p {
		s := &p[i]
		if !changes(s, base, keeps) {
			continue
		}
		if m == nil {
			m = &protocol.Applied{Generation: by.Generation, By: by.Program + "/" + by.Version, Set: make(map[string]string, len(p))}
		}
		name, value := s.Knob.String(), s.Value.String()
		if s.Key != "" {
			name += "[" + s.Key + "]"
		}
		if s.Knob == plan.Env {
			value = "set" // an annotation is no place for values that may be secret
		}
		m.Set[name] = value + " " + s.By()
		noteBase(m, base, s.Knob)
	}
	if m != nil && Idle(p, keeps) {
		noteBase(m, base, plan.CPUShares)
	}
	return m
}

// changes reports whether the setting changes the container, and so belongs into its mark.
func changes(s *plan.Setting, base *workload.Resources, keeps func(*plan.Setting) bool) bool {
	return !s.Observe && s.Target.Level == plan.LevelContainer && !Holds(base, s) && (!SpecOnly(s.Knob) || keeps(s))
}

func noteBase(m *protocol.Applied, base *workload.Resources, k plan.Knob) {
	prefix, name, value, ok := baseText(base, k)
	if !ok {
		return
	}
	if m.Base == nil {
		m.Base = make(map[string]string, 4)
	}
	m.Base[prefix+name] = value
}

// Idle reports whether the plan gives the container cpu.idle=1 through the specification. Its shares must stay out of
// it: a write of cpu.weight is EINVAL while cpu.idle is 1.
func Idle(p plan.Plan, keeps func(*plan.Setting) bool) bool {
	for i := range p {
		if s := &p[i]; s.Knob == plan.CPUIdle && !s.Observe && s.Value.Int() == 1 && keeps(s) {
			return true
		}
	}
	return false
}

// Holds reports whether the resources already have the value.
func Holds(base *workload.Resources, s *plan.Setting) bool {
	if o := field(base, s.Knob); o != nil {
		return o.Set && o.V == s.Value.Int()
	}
	if t := textField(base, s.Knob); t != nil {
		return *t == s.Value.String()
	}
	if key, value, ok := plan.Unified(*s); ok {
		have, has := base.Unified[key]
		return has && have == value
	}
	return false
}

// PlanOf reads a mark back into the plan that it was made of, as far as it can be written to the kernel: what an earlier
// life has set and a later decision may have to take back. Entries that cannot be read are left out.
func PlanOf(m *protocol.Applied, t plan.Target) plan.Plan {
	if m == nil {
		return nil
	}
	var out plan.Plan
	for _, name := range slices.Sorted(maps.Keys(m.Set)) {
		knob, key, _ := strings.Cut(strings.TrimSuffix(name, "]"), "[")
		k, ok := plan.ParseKnob(knob)
		i := strings.LastIndexByte(m.Set[name], ' ')
		if !ok || i < 0 || SpecOnly(k) {
			continue
		}
		by := m.Set[name][i+1:]
		hook, hooked := strings.CutPrefix(by, plan.HookPrefix)
		owner, ok := protocol.ParseFeature(by)
		if !ok && (!hooked || hook == "") {
			continue
		}
		s := plan.Setting{Target: t, Knob: k, Key: key, Value: plan.Text(m.Set[name][:i]), Owner: owner, Reason: "of an earlier life"}
		if hooked {
			s.Hook = hook
		}
		if !k.Info().Text {
			n, err := strconv.ParseInt(m.Set[name][:i], 10, 64)
			if err != nil {
				continue
			}
			s.Value = plan.Int(n)
		}
		out = append(out, s)
	}
	return out
}
