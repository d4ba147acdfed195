// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/plan"
)

// stubborn is a kernel that refuses every write while on.
type stubborn struct {
	apply.Writer
	on bool
}

func (r *stubborn) Write(path, value string, nonblock bool) error {
	if r.on {
		return unix.EINVAL
	}
	return r.Writer.Write(path, value, nonblock)
}

// A restore that the kernel has refused is no restore: it is tried again, by this process or the next one, and a value that is written
// meanwhile does not make ours the original.
func TestRefusedRestoreIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, kernel := range kernels {
		for _, meanwhile := range []bool{false, true} {
			files := &stubborn{}
			m := newMachine(t, kernel, func(o *apply.Options) { files.Writer, o.Writer = o.Writer, files })
			before := m.Snapshot(t)
			p := plan.Plan{
				set(qos, plan.CPUQuota, plan.Int(50000)), set(ctr, plan.CPUSetCPUs, plan.Text("0-3")), set(ctr, plan.MemoryLimit, plan.Int(1<<30)),
			}
			m.apply(t, p...)
			ours := m.Snapshot(t)
			for range 2 {
				files.on = true
				steps := m.Restore(t.Context(), m.ledger.all(), false)
				if len(steps) != len(p) {
					t.Fatalf("%s: %+v", kernel, steps)
				}
				for i := range steps {
					if steps[i].Err == nil || steps[i].Action != apply.ActWrite {
						t.Errorf("%s: not refused, or not tried: %+v", kernel, steps[i])
					}
				}
				if diff := kerneltest.Diff(ours, m.Snapshot(t)); diff != "" {
					t.Fatalf("the test shows nothing:\n%s", diff)
				}
			}
			files.on = false
			if meanwhile {
				m.apply(t, set(qos, plan.CPUQuota, plan.Int(60000)))
			}
			restored(t, m, before)
			for _, s := range m.Restore(t.Context(), m.ledger.all(), false) {
				if s.Action == apply.ActWrite {
					t.Errorf("%s: restored twice: %+v", kernel, s)
				}
			}
		}
	}
}
