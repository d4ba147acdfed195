// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cgroup

import (
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/plan"
)

// nodeFiles are the knobs of the whole node, by their names in /proc/sys/vm (Documentation/admin-guide/sysctl/vm.rst).
var nodeFiles = [plan.NumKnobs]string{
	plan.VMMinFree:        "min_free_kbytes",
	plan.VMWatermarkScale: "watermark_scale_factor",
}

// OfNode reports whether a knob is the whole node's: its target is of plan.LevelNode and has no cgroup.
func OfNode(k plan.Knob) bool { return k < plan.NumKnobs && nodeFiles[k] != "" }

// place is the directory below which the knob's cgroups lie, and its file there; "" where this version has none. A knob of
// the node has one directory and no cgroups.
func (f FS) place(k plan.Knob) (base, file string) {
	if OfNode(k) {
		return f.sysctl, nodeFiles[k]
	}
	return f.h.Base(k), f.h.File(k)
}

// fits reports whether a target can have the knob: no cgroup's path is looked for beside a parameter of the node.
func fits(t plan.Target, k plan.Knob) bool {
	return !OfNode(k) || t.Level == plan.LevelNode && t.Cgroup == ""
}

// sysctlDir is where the parameters of the virtual memory are.
func sysctlDir(r root.Roots) string { return r.Proc + "/sys/vm" }
