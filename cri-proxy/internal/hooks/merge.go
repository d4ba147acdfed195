// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooks

import (
	"fmt"
	"log/slog"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Conflict is a value that gave way to another's.
type Conflict struct {
	// Kept is a setting of the side that holds; of the same knob where it has one, else of one that goes with it.
	Kept, Dropped plan.Setting
}

// String names both sides; values of variables stay out.
func (c Conflict) String() string {
	if c.Dropped.Knob == plan.Env {
		return fmt.Sprintf("env[%s] of %s: %s's holds, %s's does not", c.Dropped.Key, c.Dropped.Target, c.Kept.By(), c.Dropped.By())
	}
	return fmt.Sprintf("%s of %s: %s %s of %s holds, %s %s of %s does not", c.Dropped.Knob, c.Dropped.Target,
		c.Kept.Knob, c.Kept.Value, c.Kept.By(), c.Dropped.Knob, c.Dropped.Value, c.Dropped.By())
}

// Merge joins our plan and a hook server's so that nothing is set by both. Where both claim the same, mode decides which
// of the two holds and the other is returned as a conflict; where both want the same value, ours stays and there is none.
// A value that is only observed never beats one that is to be written. What another hook server has brought into ours
// stays: the first by name holds. Neither plan is changed.
func Merge(ours, theirs plan.Plan, mode config.HookMerge) (plan.Plan, []Conflict) {
	owned := claims(ours)
	wanted := claims(theirs)
	var conflicts []Conflict
	out := make(plan.Plan, 0, len(ours)+len(theirs))
	for i := range ours {
		s := &ours[i]
		if rivals := wanted[plan.ClaimOf(s)]; len(rivals) > 0 && theirsHold(owned[plan.ClaimOf(s)], rivals, mode) {
			conflicts = dropped(conflicts, rivals, s)
			continue
		}
		out = append(out, *s)
	}
	for i := range theirs {
		s := &theirs[i]
		if rivals := owned[plan.ClaimOf(s)]; len(rivals) > 0 && !theirsHold(rivals, wanted[plan.ClaimOf(s)], mode) {
			conflicts = dropped(conflicts, rivals, s)
			continue
		}
		out = append(out, *s)
	}
	return out, conflicts
}

// claims sorts settings by claim.
func claims(p plan.Plan) map[plan.Claim]plan.Plan {
	out := make(map[plan.Claim]plan.Plan, len(p))
	for i := range p {
		c := plan.ClaimOf(&p[i])
		out[c] = append(out[c], p[i])
	}
	return out
}

// theirsHold decides one claim that both sides make.
func theirsHold(ours, theirs plan.Plan, mode config.HookMerge) bool {
	agreed := true
	for i := range theirs {
		s := ours.Find(theirs[i].Target, theirs[i].Knob, theirs[i].Key)
		agreed = agreed && s != nil && s.Value == theirs[i].Value
	}
	switch {
	case observed(ours):
		return !observed(theirs)
	case agreed || observed(theirs) || ours[0].Hook != "":
		return false
	default:
		return mode == config.HookReplaces
	}
}

// observed reports that nothing of the plan is to be written.
func observed(p plan.Plan) bool {
	for i := range p {
		if !p[i].Observe {
			return false
		}
	}
	return true
}

// dropped adds the conflict of a setting that gives way, unless the other side wants the same value.
func dropped(conflicts []Conflict, winners plan.Plan, s *plan.Setting) []Conflict {
	kept := winners.Find(s.Target, s.Knob, s.Key)
	if kept == nil {
		kept = &winners[0]
	} else if kept.Value == s.Value {
		return conflicts
	}
	return append(conflicts, Conflict{Kept: *kept, Dropped: *s})
}

// Join is Merge with what several hook servers want, each as the configuration says of it; what gives way is told to a
// debug log, for it may be so for every container. It is the engine's Join.
func Join(h config.ProxyHooks, log *slog.Logger) func(ours, foreign plan.Plan) plan.Plan {
	return func(ours, foreign plan.Plan) plan.Plan {
		for len(foreign) > 0 {
			server := foreign[0].Hook
			var theirs, others plan.Plan
			for _, s := range foreign {
				if s.Hook == server {
					theirs = append(theirs, s)
				} else {
					others = append(others, s)
				}
			}
			var conflicts []Conflict
			ours, conflicts = Merge(ours, theirs, h.MergeOf(server))
			for _, c := range conflicts {
				log.Debug("a hook server and we want different values", "conflict", c.String())
			}
			foreign = others
		}
		return ours
	}
}
