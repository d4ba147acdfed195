// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/iocost"
	"github.com/koord-rt/koord-rt/policy/sysctl"
)

// CostLines reads the lines of the disks' cost control.
func CostLines(fs cgroup.FS) func() map[plan.Knob]map[string]string {
	return func() map[plan.Knob]map[string]string {
		out := map[plan.Knob]map[string]string{}
		for _, k := range iocost.Knobs() {
			if lines, err := fs.Lines(k); err == nil {
				out[k] = lines
			}
		}
		return out
	}
}

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
