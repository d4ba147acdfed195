// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// What is owed stays owed while its write is refused, and is told; it ends when it was given back, by the ledger or by a write, and
// when its cgroup has gone.
func TestOwedUntilGivenBack(t *testing.T) {
	t.Parallel()
	const dir = "/kubepods/besteffort"
	set := plan.Setting{Target: plan.Target{Level: plan.LevelQoS, Cgroup: dir}, Knob: plan.CPUQuota, Value: plan.Int(unit.Unlimited)}
	owed := decide.Owed{HeldSetting: decide.HeldSetting{Cgroup: dir, Knob: plan.CPUQuota.String()}}
	refused := errors.New("EINVAL")
	for name, c := range map[string]struct {
		// by the ledger, or by a write
		ledger  bool
		outcome apply.Outcome
		err     error
		owed    bool
	}{
		"write refused":   {false, apply.Failed, refused, true},
		"written":         {false, apply.Written, nil, false},
		"already there":   {false, apply.Unchanged, nil, false},
		"gone":            {false, apply.Gone, apply.ErrGone, false},
		"observed only":   {false, apply.Observed, nil, true},
		"restore refused": {true, apply.Failed, refused, true},
		"restored":        {true, apply.Written, nil, false},
		"restore of none": {true, apply.Gone, apply.ErrGone, false},
	} {
		result := []apply.Result{{Setting: set, Outcome: c.outcome, Err: c.err}}
		a := New(Options{
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: func() unit.Micros { return 0 }, Kept: decide.State{Owed: []decide.Owed{owed}},
			GiveBack: func(_ context.Context, p plan.Plan) ([]apply.Result, plan.Plan, error) {
				if c.ledger {
					return result, nil, nil
				}
				return nil, p, nil // no ledger knows
			},
			Write: func(_ context.Context, p plan.Plan) []apply.Result {
				if len(p) == 0 {
					return nil
				}
				return result
			},
		})
		a.write(t.Context(), a.giveBack(t.Context(), plan.Plan{set}))
		if a.failed != (c.err != nil && c.outcome == apply.Failed) {
			t.Errorf("%s: the round has failed: %v", name, a.failed)
		}
		if got := len(a.state.Owed) == 1; got != c.owed {
			t.Errorf("%s: owed: %v", name, got)
		}
		if told := len(a.state.Refused()) == 1; told != (c.outcome == apply.Failed) {
			t.Errorf("%s: told: %v", name, told)
		}
		if c.outcome == apply.Failed && a.told["give back"] == "" && a.told["write"] == "" {
			t.Errorf("%s: nothing in the log", name)
		}
		if a.unkept == (c.outcome == apply.Observed) {
			t.Errorf("%s: to be kept: %v", name, a.unkept)
		}
	}
}
