// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/container"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

// TestQuotaInSystemdsStep: what we make of a quota is a value that systemd can write too; the kubelet's own is not ours.
func TestQuotaInSystemdsStep(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		systemd bool
		ratio   unit.Ratio
		want    int64 // 0: not planned
	}{
		"cgroupfs":          {ratio: 120, want: 333334},
		"systemd":           {systemd: true, ratio: 120, want: 334000},
		"already a step":    {systemd: true, ratio: 125, want: 320000},
		"the kubelet's own": {systemd: true, ratio: 100},
	} {
		v, p := pt.View(), pt.Pod(protocol.QoSLS)
		v.Kernel.Systemd, v.Dynamic.Normalization = tc.systemd, tc.ratio
		c := pt.Container(p)
		c.Base.Quota, c.Base.Period = unit.Some(400000), unit.Some(int64(unit.CFSPeriod))
		pl, _ := container.Decide(v, p, c)
		s := pl.Get(plan.CPUQuota)
		switch {
		case tc.want == 0 && s != nil:
			t.Errorf("%s: planned %s", name, s)
		case tc.want != 0 && (s == nil || s.Value.Int() != tc.want):
			t.Errorf("%s: planned %v, want %d", name, s, tc.want)
		}
	}
}
