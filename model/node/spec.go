// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package node

import "github.com/koord-rt/koord-rt/model/plan"

// unified are the cgroup v2 files that go into a container's OCI spec. A key that fails, fails the container's creation, so
// files of devices (io.*) and of particular kernels are written after the creation instead.
const unified = plan.Knobs(1<<plan.CPUBurst | 1<<plan.CPUIdle | 1<<plan.MemoryMin | 1<<plan.MemoryLow |
	1<<plan.MemoryHigh | 1<<plan.MemoryOOMGroup)

// InUnified reports whether a knob goes into the unified map of a container's resources, by NRI and by CRI alike, so that
// both ways end in the same state: the runtime applies it before the process exists and again at every update, and with the
// systemd driver it becomes a property of the unit.
func (v *View) InUnified(k plan.Knob) bool {
	return v.Kernel.Cgroup == CgroupV2 && v.Runtime.Fields.Unified && unified.Has(k)
}
