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
