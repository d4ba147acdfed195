// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// backAgain is after how long it is tried again to give back what could not be: it costs reading the ledgers.
const backAgain = 10 * unit.Second

// Owed is a value that was ours and is not wanted any more, until it is known that it was given back or that its cgroup has gone.
type Owed struct {
	HeldSetting
	// Again is when it is tried next.
	Again unit.Micros `json:"again"`
	// Why the last try has failed; empty while there is no answer.
	Why string `json:"why,omitempty"`
}

// is reports whether a setting is about what is owed. Names are left out: an application may have been renamed.
func (o *Owed) is(cgroup, knob string) bool { return o.Cgroup == cgroup && o.Knob == knob }

// owe notes what this step gives back.
func (s *State) owe(h HeldSetting, now unit.Micros) {
	s.Owed = append(slices.Clip(s.Owed), Owed{HeldSetting: h, Again: now + backAgain})
}

// Returned takes in what became of a setting that is owed: err is nil when it was given back, or is nobody's any more. It reports
// whether that is news; of what is not owed nothing is.
func (s *State) Returned(set *plan.Setting, err error) bool {
	i := slices.IndexFunc(s.Owed, func(o Owed) bool { return o.is(set.Target.Cgroup, set.Knob.String()) })
	if i < 0 || set.Target.Level != plan.LevelQoS {
		return false
	}
	s.Owed = slices.Clone(s.Owed) // the step before has it too
	if err == nil {
		s.Owed = slices.Delete(s.Owed, i, i+1)
		return true
	}
	was := s.Owed[i].Why
	s.Owed[i].Why = err.Error()
	return was != s.Owed[i].Why
}

// Refused are those that have been tried in vain.
func (s *State) Refused() (out []Owed) {
	for i := range s.Owed {
		if s.Owed[i].Why != "" {
			out = append(out, s.Owed[i])
		}
	}
	return out
}

// giveBackAgain adds what is due of what is owed. What is wanted again is owed no more.
func giveBackAgain(f *Facts, s *State, out *Outcome) {
	if len(s.Owed) == 0 {
		return
	}
	owed := make([]Owed, 0, len(s.Owed))
	for _, o := range s.Owed {
		tier := o.App == ""
		if tier && s.TierHeld && s.TierDir == o.Cgroup || slices.ContainsFunc(s.Apps, func(h HeldSetting) bool { return o.is(h.Cgroup, h.Knob) }) {
			continue
		}
		if o.Again <= f.Now {
			set, ok := o.setting(f)
			if !ok {
				continue // a later version has kept it
			}
			o.Again, out.Back = f.Now+backAgain, append(out.Back, set)
		}
		owed = append(owed, o)
	}
	s.Owed = owed
}

// setting is what gives it back; false for a knob that is not known.
func (o *Owed) setting(f *Facts) (plan.Setting, bool) {
	k, known := plan.ParseKnob(o.Knob)
	value, owner, ok := neutral(f, k)
	if o.App == "" {
		value, owner, ok = plan.Int(unit.Unlimited), protocol.FeatureBatch, k == plan.CPUQuota
	}
	return plan.Setting{
		Target: plan.Target{Level: plan.LevelQoS, Cgroup: o.Cgroup, Name: o.App}, Knob: k, Value: value, Owner: owner,
		Reason: "no longer wanted, and it could not be given back before",
	}, known && ok
}
