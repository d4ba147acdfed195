// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// What could not be given back is asked for every ten seconds, over a restart too, until it is known to be back; what is wanted again
// is not.
func TestWhatIsOwed(t *testing.T) {
	t.Parallel()
	refused := errors.New("EINVAL")
	for name, c := range map[string]struct {
		policy string
		change func(*decide.Facts)
		cgroup string
		value  plan.Value
		first  func(*decide.Outcome) plan.Plan
	}{
		"tier": {strategy.SuppressCFSQuota, func(*decide.Facts) {}, "/kubepods/besteffort", plan.Int(unit.Unlimited), func(o *decide.Outcome) plan.Plan { return o.Tier }},
		"application": {
			strategy.SuppressCPUSet, withApps, "/host-best-effort/spark", plan.Text("0-31"),
			func(o *decide.Outcome) plan.Plan { return o.Back },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, w := facts(c.policy)
			c.change(f)
			var s decide.State
			var out decide.Outcome
			step := func(on bool, after unit.Micros) {
				f.Now += after
				measure(w, f.Now-unit.Second/2, 14, 8, 3)
				f.View.Strategy.ResourceUsedThresholdWithBE.Enable = new(on)
				s, out = decide.Step(s, f)
			}
			owes := func(what string, p plan.Plan, want bool) *plan.Setting {
				t.Helper()
				if !want && len(p) == 0 {
					return nil
				}
				if !want || len(p) != 1 || p[0].Target.Cgroup != c.cgroup || p[0].Value != c.value || p[0].Target.Level != plan.LevelQoS {
					t.Fatalf("%s: %v, want one: %v", what, p, want)
				}
				return &p[0]
			}
			step(true, 0)
			step(false, unit.Second)
			set := owes("the end", c.first(&out), true)
			if len(s.Refused()) > 0 {
				t.Error("refused before it was tried")
			}
			if !s.Returned(set, refused) || s.Returned(set, refused) || len(s.Refused()) != 1 || s.Refused()[0].Why != "EINVAL" {
				t.Errorf("after a refusal: %+v", s.Refused())
			}
			kept, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			s = decide.State{}
			if err := json.Unmarshal(kept, &s); err != nil {
				t.Fatal(err)
			}
			step(false, unit.Second)
			owes("too early", out.Back, false)
			for range 2 {
				step(false, 9*unit.Second)
				set = owes("again", out.Back, true)
				s.Returned(set, refused)
				step(false, unit.Second)
				owes("between", out.Back, false)
			}
			before := s
			if !s.Returned(set, nil) || s.Returned(set, nil) || len(s.Refused()) > 0 {
				t.Errorf("after it was given back: %+v", s.Refused())
			}
			step(false, unit.Minute)
			owes("given back", out.Back, false)

			if s = before; len(s.Refused()) != 1 {
				t.Error("a former state was changed")
			}
			step(true, unit.Minute)
			owes("wanted again", out.Back, false)
			if len(s.Refused()) > 0 {
				t.Errorf("wanted again, and owed: %+v", s.Refused())
			}
		})
	}
}
