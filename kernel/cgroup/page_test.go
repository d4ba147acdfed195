// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cgroup_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// TestPagesOfTheKernel: whatever the size of its pages (arm64: 4, 16 or 64 KiB), what was written once is the same and nothing has to be written again;
// no limit is one as well; and another page is another value.
func TestPagesOfTheKernel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kernel string
		knobs  []plan.Knob
	}{
		{"6.12", []plan.Knob{plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh, plan.MemoryLimit}}, {"v1", []plan.Knob{plan.MemoryLimit}},
	} {
		for _, page := range []int64{4 << 10, 16 << 10, 64 << 10} {
			tree := kerneltest.New(t, c.kernel, ctr)
			tree.Page = page
			fs, err := cgroup.Open(tree.Roots, tree.Version, cgroup.Options{Page: unit.Bytes(page)})
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range c.knobs {
				for _, want := range []int64{429494272, 429457408, 1 << 30, 4096, unit.Unlimited} { // the first is 20 % of 2 GiB in pages of 4 KiB
					if want == unit.Unlimited && (k == plan.MemoryMin || k == plan.MemoryLow) {
						continue
					}
					s := plan.Setting{Target: target(plan.LevelContainer, ctr), Knob: k, Value: plan.Int(want)}
					change, err := fs.Prepare(s)
					if err != nil {
						t.Fatal(err)
					}
					for _, w := range change.Writes {
						if err := tree.Write(w.File, w.Data, false); err != nil {
							t.Fatal(err)
						}
					}
					if again, err := fs.Prepare(s); err != nil || !again.Same {
						t.Errorf("%s, pages of %d: %s %d is written again and again over %s, %v", c.kernel, page, k, want, again.Current, err)
					}
					if s.Value = plan.Int(want + page); want != unit.Unlimited && fs.Same(s, plan.Int(want)) {
						t.Errorf("%s, pages of %d: %s %d is another page than %s", c.kernel, page, k, want, s.Value)
					}
					if held, err := fs.Read(s.ID()); want == unit.Unlimited && (err != nil || held != plan.Int(want)) {
						t.Errorf("%s, pages of %d: no %s is read as %s, %v", c.kernel, page, k, held, err)
					}
				}
			}
		}
	}
}
