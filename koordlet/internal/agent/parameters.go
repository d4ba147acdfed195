// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/sysctl"
)

// Parameters reads the node's kernel parameters as the knobs' files have them.
func Parameters(fs cgroup.FS) func() map[plan.Knob]int64 {
	return func() map[plan.Knob]int64 {
		out := map[plan.Knob]int64{}
		for _, k := range sysctl.Knobs() {
			if v, err := fs.Read(plan.ID{Target: plan.Target{Level: plan.LevelNode}, Knob: k}); err == nil {
				out[k] = v.Int()
			}
		}
		return out
	}
}
