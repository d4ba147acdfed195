// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/resctrl"
	"github.com/koord-rt/koord-rt/kernel/wire"
	"github.com/koord-rt/koord-rt/model/plan"
)

// TestMissingGroup: with resctrl as it is, a process whose class has no group is not in force there, written or read back, and a monitoring
// group that is missing is made.
func TestMissingGroup(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12", func(o *apply.Options) {
		o.Groups = wire.Groups{FS: resctrl.FS(o.Roots.Resctrl), Proc: proc.FS(o.Roots.Proc)}
	})
	m.Resctrl(t, true, true)
	m.start(t, ctr, 10)
	class := set(ctr, plan.RDTClass, plan.Text("koordlet-uid"))
	if r := m.Apply(t.Context(), plan.Plan{class}, 1); r[0].Outcome != apply.Failed || !errors.Is(r[0].Err, apply.ErrUnsupported) {
		t.Errorf("moved into a group that is missing: %s, %v", r[0].Outcome, r[0].Err)
	}
	if bad := m.Verify(plan.Plan{class}); len(bad) != 1 || bad[0].Err == nil {
		t.Errorf("in force in a group that is missing: %v", bad)
	}
	m.Group(t, "koordlet-uid")
	mon := filepath.Join(m.Roots.Resctrl, "koordlet-uid", "mon_groups", "uid")
	m.Apply(t.Context(), plan.Plan{class, set(ctr, plan.RDTMonGroup, plan.Text("uid"))}, 1)
	if _, err := os.Stat(mon); err != nil {
		t.Errorf("the monitoring group: %v", err)
	}
}
