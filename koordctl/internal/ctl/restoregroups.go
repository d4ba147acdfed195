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
// group. It comes last: a group's own values are restored before. Groups that somebody else made stay.
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
	return out
}
