// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// TestRestoreRemovesOurGroups: a group that the ledger shows as made by us goes, one of somebody else stays.
func TestRestoreRemovesOurGroups(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.12")
	for _, name := range []string{"BE", "theirs"} {
		if err := os.MkdirAll(filepath.Join(h.tree.Roots.Resctrl, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	group := func(name string, via journal.Via) journal.Record {
		return journal.Record{Boot: kerneltest.BootID, Target: plan.Target{Level: plan.LevelGroup, Cgroup: name}, Via: via}
	}
	h.work(t, nil, group("BE", journal.ViaMade), group("LS", journal.ViaMade), group("LS", journal.ViaGone))
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(h.tree.Roots.Resctrl, name))
		return err == nil
	}
	out, err := h.run(t, "restore", "--dry-run")
	if err != nil || !strings.Contains(out, "BE") || !exists("BE") {
		t.Errorf("dry run: %v\n%s", err, out)
	}
	if out, err := h.run(t, "restore"); err != nil || exists("BE") || !exists("theirs") {
		t.Errorf("restore: %v, BE there %v, theirs there %v\n%s", err, exists("BE"), exists("theirs"), out)
	}
}

// TestRestoreRemovesOurMonitoringGroups: pods' counters go, also of a pod that has ended, where the class's group is somebody else's; a foreign
// tool's stay.
func TestRestoreRemovesOurMonitoringGroups(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.12")
	const ours, elsewhere, tool = "BE/mon_groups/uid-1", "theirs/mon_groups/uid-1", "BE/mon_groups/tool"
	for _, name := range []string{ours, elsewhere, tool} {
		if err := os.MkdirAll(filepath.Join(h.tree.Roots.Resctrl, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ended := plan.Target{Level: plan.LevelContainer, Cgroup: "/kubepods/besteffort/poduid-1/c1", Pod: "uid-1", Container: "c1c1c1"}
	record := func(k plan.Knob, want string, via journal.Via) journal.Record {
		return journal.Record{Boot: kerneltest.BootID, Target: ended, Knob: k.String(), Want: want, Via: via}
	}
	h.work(t, nil, record(plan.RDTClass, "BE", journal.ViaRuntime), record(plan.RDTMonGroup, "uid-1", journal.ViaDirect), record(plan.RDTMonGroup, "tool", journal.ViaDirect))
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(h.tree.Roots.Resctrl, name))
		return err == nil
	}
	for _, args := range [][]string{{"--dry-run"}, {"--container", "c1c1c1"}} {
		if out, err := h.run(t, append([]string{"restore"}, args...)...); err != nil || !exists(ours) {
			t.Errorf("%v: %v, there %t\n%s", args, err, exists(ours), out)
		}
	}
	out, err := h.run(t, "restore")
	if err != nil || exists(ours) || !exists(elsewhere) || !exists(tool) {
		t.Errorf("restore: %v, ours there %t, below somebody else's group %t, a tool's %t\n%s", err, exists(ours), exists(elsewhere), exists(tool), out)
	}
}
