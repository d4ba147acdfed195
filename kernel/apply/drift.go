// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"context"

	"github.com/koord-rt/koord-rt/model/drift"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// strayed reports whether what is about to be written over is neither what was last seen to stand as wanted nor what we have
// written last. Only cgroup files are looked at: other knobs belong to processes, which come and go. A weight that the kernel
// has changed beside cpu.idle is nobody's doing.
func (a *session) strayed(t *target, s plan.Setting, current plan.Value) bool {
	if !isCgroupKnob(s.Knob) || s.Knob == plan.CPUShares && t.ownAt(plan.Setting{Knob: plan.CPUIdle}) >= 0 {
		return false
	}
	if s.Knob == besideKnob && t.beside.telling > 0 {
		return false // systemd writes, by our doing
	}
	known := false
	if i := t.at(s); i >= 0 && t.notes[i].via == journal.ViaDirect && t.notes[i].err == "" {
		known, s.Value = true, t.notes[i].value
		if a.fs.Same(s, current) {
			return false
		}
	}
	if i := t.ownAt(s); i >= 0 {
		known, s.Value = true, t.own[i].value
		if a.fs.Same(s, current) {
			return false
		}
	}
	return known
}

// Stray is a value of ours that somebody has written over.
type Stray struct {
	Setting plan.Setting
	// Found stood there instead.
	Found plan.Value
	// Claims are what others than systemd hold for it.
	Claims []drift.Claim
}

// Sources says of each who may have written it. Systemd is asked once for each unit, so it must not be told our values in
// between; where it does not answer until ctx ends, nothing is known of it. It takes no lock.
func (a *Applier) Sources(ctx context.Context, strays []Stray) []drift.Source {
	units := map[string]map[plan.Knob]string{}
	out := make([]drift.Source, len(strays))
	for i := range strays {
		s := strays[i].Setting
		same := func(claimed, found plan.Value) bool {
			s.Value = claimed
			return a.o.FS.Same(s, found)
		}
		claims := strays[i].Claims
		if v, ok := a.heldBySystemd(ctx, units, s); ok {
			claims = append(claims[:len(claims):len(claims)], drift.Claim{By: drift.Systemd, Value: v})
		}
		out[i] = drift.Attribute(strays[i].Found, claims, same)
	}
	return out
}

// heldBySystemd is what systemd would write for a setting; units are those that were asked already.
func (a *Applier) heldBySystemd(ctx context.Context, units map[string]map[plan.Knob]string, s plan.Setting) (plan.Value, bool) {
	dir := s.Target.Cgroup
	if a.o.Units == nil || !isCgroupKnob(s.Knob) || s.Target.Level == plan.LevelGroup || !a.o.Units.Has(dir, s.Knob) {
		return plan.Value{}, false
	}
	held, asked := units[dir]
	if !asked {
		held, _ = a.o.Units.Held(ctx, dir) // then systemd is not named
		units[dir] = held
	}
	text, ok := held[s.Knob]
	if !ok {
		return plan.Value{}, false
	}
	v, err := a.o.FS.Parse(s.ID(), []byte(text))
	return v, err == nil
}
