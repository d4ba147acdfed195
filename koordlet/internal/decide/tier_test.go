// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"errors"
	"testing"

	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// An agent that was killed before it had kept its last decision goes on from the quota that stands, and from no other's.
func TestResumesFromTheQuotaThatStands(t *testing.T) {
	t.Parallel()
	const dir = "/kubepods/besteffort"
	for name, c := range map[string]struct {
		held   bool
		mode   suppress.Mode
		stands int64
		err    error
		want   unit.Micros
	}{
		"fallen since":   {true, suppress.Quota, 8700, nil, 8700},
		"grown since":    {true, suppress.Quota, 190000, nil, 190000},
		"gone":           {true, suppress.Quota, unit.Unlimited, nil, 127100},
		"not readable":   {true, suppress.Quota, 8700, errors.New("no such file"), 127100},
		"somebody's":     {false, suppress.Quota, 8700, nil, 127100},
		"held by a set":  {true, suppress.CPUSet, 8700, nil, 127100},
		"nobody decided": {true, suppress.Unknown, 8700, nil, 127100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := decide.State{TierHeld: c.held, TierDir: dir, Suppress: suppress.State{Mode: c.mode, Quota: 127100}}
			s.Resume(func(id plan.ID) (plan.Value, error) {
				if id.Target.Cgroup != dir || id.Knob != plan.CPUQuota {
					t.Errorf("asked for %v", id)
				}
				return plan.Int(c.stands), c.err
			})
			if s.Suppress.Quota != c.want {
				t.Errorf("it goes on from %d, want %d", s.Suppress.Quota, c.want)
			}
		})
	}
}
