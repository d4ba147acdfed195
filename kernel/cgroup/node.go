// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cgroup

import (
	"strings"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/plan"
)

// nodeFiles are the knobs of the whole node, by their names in /proc/sys/vm (Documentation/admin-guide/sysctl/vm.rst).
var nodeFiles = [plan.NumKnobs]string{
	plan.VMMinFree:        "min_free_kbytes",
	plan.VMWatermarkScale: "watermark_scale_factor",
}

// rootKnobs are the knobs of the whole node that stand in files of the root cgroup, which no other cgroup has: a line for each disk.
var rootKnobs = plan.KnobSet(plan.IOCostQoS, plan.IOCostModel)

// OfNode reports whether a knob is the whole node's: its target is of plan.LevelNode and has no cgroup.
func OfNode(k plan.Knob) bool { return isParameter(k) || OfRoot(k) }

// OfRoot reports whether a knob of the node stands in a file of the root cgroup.
func OfRoot(k plan.Knob) bool { return rootKnobs.Has(k) }

func isParameter(k plan.Knob) bool { return k < plan.NumKnobs && nodeFiles[k] != "" }

// place is the directory below which the knob's cgroups lie, and its file there; "" where this version has none. A knob of
// the node has one directory and no cgroups.
func (f FS) place(k plan.Knob) (base, file string) {
	if isParameter(k) {
		return f.sysctl, nodeFiles[k]
	}
	return f.h.Base(k), f.h.File(k)
}

// fits reports whether a target can have the knob: no cgroup's path is looked for beside a parameter of the node.
func fits(t plan.Target, k plan.Knob) bool {
	return !OfNode(k) || t.Level == plan.LevelNode && t.Cgroup == ""
}

// Lines are the lines of a keyed file of the root cgroup by key, without it: of each disk that has one. A file that does not exist is an error.
func (f FS) Lines(k plan.Knob) (map[string]string, error) {
	b := f.files.Get()
	defer b.Put()
	raw, err := f.ReadRaw(b, plan.Target{Level: plan.LevelNode}, k)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		if key, rest, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			out[key] = rest
		}
	}
	return out, nil
}

// sysctlDir is where the parameters of the virtual memory are.
func sysctlDir(r root.Roots) string { return r.Proc + "/sys/vm" }
