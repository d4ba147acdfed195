// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/plan"
)

// The cost control of a disk is a line of a file of the root cgroup: of each file only this disk's line is compared, written and given back, and
// a restore makes the line that stood there before byte for byte. A line that had not been there remains, off and with the kernel's figures.
func TestCostLines(t *testing.T) {
	t.Parallel()
	const (
		admins = "259:0 enable=1 ctrl=user rpct=90.00 rlat=7000 wpct=90.00 wlat=9000 min=50.00 max=150.00"
		own    = "8:0 enable=0 ctrl=auto rpct=0.00 rlat=25000 wpct=0.00 wlat=25000 min=1.00 max=10000.00"
		nobody = "8:0 ctrl=auto model=linear rbps=488636629 rseqiops=8932 rrandiops=8518 wbps=427891549 wseqiops=28755 wrandiops=21940"
	)
	line := func(k plan.Knob, disk, words string) plan.Setting {
		return plan.Setting{Knob: k, Key: disk, Value: plan.Text(words), Reason: "test"}
	}
	for _, kernel := range []string{"6.12", "anolis"} {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, kernel)
			qos, model := "io.cost.qos", "io.cost.model"
			if kernel == "anolis" {
				qos, model = "blkio.cost.qos", "blkio.cost.model"
			}
			m.Set(t, "", qos, admins)
			p := plan.Plan{
				line(plan.IOCostQoS, "8:0", "enable=1 ctrl=user rpct=95.00 rlat=5000 wpct=0.00"),
				line(plan.IOCostQoS, "259:0", "enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.00 wlat=3000"),
				line(plan.IOCostModel, "8:0", "ctrl=user model=linear rbps=1 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=6"),
			}
			for _, r := range m.Apply(t.Context(), p, 1) {
				if r.Outcome != apply.Written || r.Err != nil {
					t.Errorf("%+v", r)
				}
			}
			wantQoS := "259:0 enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.00 wlat=3000 min=50.00 max=150.00\n" +
				"8:0 enable=1 ctrl=user rpct=95.00 rlat=5000 wpct=0.00 wlat=25000 min=1.00 max=10000.00"
			if got := m.Get(t, "", qos); got != wantQoS {
				t.Errorf("%s:\n%s\nwant\n%s", qos, got, wantQoS)
			}
			if got := m.Get(t, "", model); got != "8:0 "+p[2].Value.String() {
				t.Errorf("%s: %s", model, got)
			}
			for _, r := range m.Apply(t.Context(), p, 2) {
				if r.Outcome != apply.Unchanged {
					t.Errorf("again: %+v", r)
				}
			}
			if bad := m.Verify(p); len(bad) != 0 {
				t.Errorf("verify: %+v", bad)
			}
			if r := m.Apply(t.Context(), plan.Plan{set(pod, plan.IOCostQoS, plan.Text("enable=1"))}, 3); r[0].Outcome != apply.Failed {
				t.Errorf("at a pod: %+v", r[0])
			}
			before := m.Snapshot(t)
			for _, s := range m.Restore(t.Context(), m.ledger.all(), true) {
				if s.Err != nil {
					t.Errorf("dry run: %+v", s)
				}
			}
			if d := kerneltest.Diff(before, m.Snapshot(t)); d != "" {
				t.Errorf("a dry run wrote %s", d)
			}
			for range 2 { // the second finds nothing of ours
				for _, s := range m.Restore(t.Context(), m.ledger.all(), false) {
					if s.Err != nil {
						t.Errorf("%+v", s)
					}
				}
				if got, want := m.Get(t, "", qos), admins+"\n"+own; got != want {
					t.Errorf("restored to\n%s\nwant\n%s", got, want)
				}
				if got := m.Get(t, "", model); got != nobody {
					t.Errorf("restored to %s", got)
				}
			}
			// Somebody else's line stays.
			m.Apply(t.Context(), p[:1], 4)
			m.Set(t, "", qos, "8:0 enable=1 ctrl=user rpct=10.00 rlat=1 wpct=0.00 wlat=2 min=1.00 max=100.00")
			before = m.Snapshot(t)
			m.Restore(t.Context(), m.ledger.all(), false)
			if d := kerneltest.Diff(before, m.Snapshot(t)); d != "" {
				t.Errorf("written over somebody else's: %s", d)
			}
		})
	}
}
