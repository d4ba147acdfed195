// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// A parameter of the node is compared, recorded with its original, written, verified and restored as any other value, on
// both cgroup versions; its directory's inode, which /proc changes at any time, is nobody's business.
func TestNodeParameters(t *testing.T) {
	t.Parallel()
	for _, kernel := range []string{"6.12", "v1"} {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, kernel)
			dir := m.Roots.Proc + "/sys/vm"
			put := func(name, content string) {
				t.Helper()
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			get := func(name string) string {
				t.Helper()
				text, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
			param := func(k plan.Knob, n int64) plan.Setting {
				return plan.Setting{Knob: k, Value: plan.Int(n), Reason: "test"}
			}
			if r := m.Apply(t.Context(), plan.Plan{param(plan.VMMinFree, 90000)}, 1); r[0].Outcome == apply.Written || r[0].Err == nil {
				t.Errorf("without the file: %+v", r[0])
			}
			put("min_free_kbytes", "67584\n")
			put("watermark_scale_factor", "10\n")
			p := plan.Plan{param(plan.VMMinFree, 90000), param(plan.VMWatermarkScale, 150)}
			for i, r := range m.Apply(t.Context(), p, 1) {
				if r.Outcome != apply.Written || r.Err != nil || r.Before.Int() != []int64{67584, 10}[i] {
					t.Errorf("%+v", r)
				}
			}
			if get("min_free_kbytes") != "90000\n" || get("watermark_scale_factor") != "150\n" {
				t.Errorf("%q, %q", get("min_free_kbytes"), get("watermark_scale_factor"))
			}
			for _, r := range m.Apply(t.Context(), p, 2) {
				if r.Outcome != apply.Unchanged {
					t.Errorf("again: %+v", r)
				}
			}
			if bad := m.Verify(p); len(bad) != 0 {
				t.Errorf("verify: %+v", bad)
			}
			put("watermark_scale_factor", "42\n")
			if bad := m.Verify(p); len(bad) != 1 || bad[0].Got != plan.Int(42) {
				t.Errorf("verify after a foreign write: %+v", bad)
			}
			for _, r := range m.ledger.all() {
				if r.Via == journal.ViaDirect && r.Inode != 0 {
					t.Errorf("an inode in %+v", r)
				}
			}
			if err := os.Rename(dir, dir+".old"); err != nil { // another inode
				t.Fatal(err)
			}
			put("min_free_kbytes", "90000\n")
			put("watermark_scale_factor", "42\n")
			for _, s := range m.Restore(t.Context(), m.ledger.all(), false) {
				if s.Err != nil {
					t.Errorf("%+v", s)
				}
			}
			if get("min_free_kbytes") != "67584\n" || get("watermark_scale_factor") != "42\n" {
				t.Errorf("restored to %q, %q", get("min_free_kbytes"), get("watermark_scale_factor"))
			}
			// A node's parameter is no cgroup's, and a cgroup's value is not the node's.
			s := set(pod, plan.VMMinFree, plan.Int(90000))
			if r := m.Apply(t.Context(), plan.Plan{s}, 3); r[0].Outcome != apply.Failed {
				t.Errorf("at a pod: %+v", r[0])
			}
		})
	}
}
