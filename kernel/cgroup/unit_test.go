// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cgroup_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/plan"
)

// TestQuotaOfUnit: systemd's rounding of our quota is ours where it is a unit's, and nowhere else.
func TestQuotaOfUnit(t *testing.T) {
	t.Parallel()
	const often = "/kubepods.slice/often.slice" // its period is 10 ms
	tree := kerneltest.New(t, "6.12", ctr, often)
	tree.Set(t, often, "cpu.max", "20000 10000")
	fs := open(t, tree)
	for _, c := range []struct {
		cgroup     string
		want, have int64
		same       bool
	}{
		{"/kubepods.slice/kubepods-besteffort.slice", 33300, 34000, true}, {"/kubepods.slice/kubepods-besteffort.slice", 34000, 34000, true},
		{"/kubepods.slice/kubepods-besteffort.slice", 34000, 33300, false}, {"/kubepods.slice/kubepods-besteffort.slice", 33300, 35000, false},
		{"/kubepods.slice/kubepods-podX.slice/cri-containerd-c.scope", 33300, 34000, true}, {"/kubepods.slice", -1, 1000, false},
		{"/kubepods/besteffort", 33300, 34000, false},
		{often, 19100, 20000, false}, {often, 33330, 33400, true}, {often, 33330, 34000, false},
	} {
		s := plan.Setting{Target: plan.Target{Level: plan.LevelQoS, Cgroup: c.cgroup}, Knob: plan.CPUQuota, Value: plan.Int(c.want)}
		if got := fs.Same(s, plan.Int(c.have)); got != c.same {
			t.Errorf("%s: wanted %d, %d is the same: %v", c.cgroup, c.want, c.have, got)
		}
	}
}
