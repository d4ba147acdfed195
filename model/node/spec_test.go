// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package node_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Files of devices and of particular kernels would fail the creation; without cgroup v2 or the map there is no place.
func TestInUnified(t *testing.T) {
	t.Parallel()
	v2 := node.View{Kernel: node.Kernel{Cgroup: node.CgroupV2}, Runtime: node.Runtime{Fields: node.Fields{Unified: true}}}
	v1, old := v2, v2
	v1.Kernel.Cgroup = node.CgroupV1
	old.Runtime.Fields.Unified = false
	for name, tc := range map[string]struct {
		view *node.View
		knob plan.Knob
		want bool
	}{
		"burst":                     {&v2, plan.CPUBurst, true},
		"idle":                      {&v2, plan.CPUIdle, true},
		"memory.oom.group":          {&v2, plan.MemoryOOMGroup, true},
		"a device's":                {&v2, plan.IOReadBPS, false},
		"a particular kernel's":     {&v2, plan.CPUBvt, false},
		"a field of its own":        {&v2, plan.CPUQuota, false},
		"cgroup v1":                 {&v1, plan.CPUBurst, false},
		"a runtime without the map": {&old, plan.MemoryHigh, false},
	} {
		if got := tc.view.InUnified(tc.knob); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
