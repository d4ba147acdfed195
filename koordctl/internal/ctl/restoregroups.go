// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/resctrl"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// removeGroups takes away the resctrl groups that the ledger shows as made by us; the kernel moves their tasks to the root
// group. It comes last: a group's own values are restored before. Groups that somebody else made stay, without our monitoring groups.
func (m *machine) removeGroups(records []journal.Record, dryRun bool) []apply.RestoreStep {
	made := map[string]plan.Target{}
	for i := range records {
		r := &records[i]
		switch {
		case r.Target.Level != plan.LevelGroup || r.Target.Cgroup == "" || r.Boot != "" && r.Boot != m.boot:
		case r.Via == journal.ViaMade:
			made[r.Target.Cgroup] = r.Target
		case r.Via == journal.ViaGone:
			delete(made, r.Target.Cgroup)
		}
	}
	var out []apply.RestoreStep
	for _, name := range slices.Sorted(maps.Keys(made)) {
		dir := filepath.Join(m.roots.Resctrl, name)
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		s := apply.RestoreStep{Target: made[name], Action: apply.ActWrite, Files: []string{dir}, To: []string{"removed"}, Reason: "a group of ours"}
		if !dryRun {
			s.Err = resctrl.FS(m.roots.Resctrl).RemoveGroup(name)
		}
		out = append(out, s)
	}
	return append(out, m.removeMons(records, made, dryRun)...)
}

// removeMons takes away the pods' monitoring groups: each keeps a number of the hardware until somebody does. Those below a group of ours go
// with it.
func (m *machine) removeMons(records []journal.Record, made map[string]plan.Target, dryRun bool) []apply.RestoreStep {
	var ours journal.Counted
	for i := range records {
		if r := &records[i]; r.Boot == "" || r.Boot == m.boot {
			ours.Note(r)
		}
	}
	if ours.Empty() {
		return nil
	}
	failed := func(err error) []apply.RestoreStep {
		return []apply.RestoreStep{{Knob: plan.RDTMonGroup, Action: apply.ActWrite, Reason: "cannot be listed", Err: err}}
	}
	fs := resctrl.FS(m.roots.Resctrl)
	groups, err := fs.Groups()
	if err != nil {
		return failed(err)
	}
	var out []apply.RestoreStep
	for _, group := range append([]string{""}, groups...) {
		names, err := fs.MonGroups(group)
		if err != nil {
			return append(out, failed(err)...)
		}
		for _, name := range names {
			if _, goes := made[group]; goes || !ours.Has(group, name) {
				continue
			}
			s := apply.RestoreStep{
				Target: plan.Target{Level: plan.LevelGroup, Cgroup: filepath.Join(group, "mon_groups", name), Pod: name}, Knob: plan.RDTMonGroup,
				Action: apply.ActWrite, Files: []string{filepath.Join(m.roots.Resctrl, group, "mon_groups", name)}, To: []string{"removed"},
				Reason: "a pod's counters, made by us",
			}
			if !dryRun {
				s.Err = fs.RemoveMon(group, name)
			}
			out = append(out, s)
		}
	}
	return out
}
