// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package talk

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// The worked example of koordinator-node.md §12.8: 9.8 CPUs are left, so 10 CPUs or a quota of 980000 µs.
func TestSuppressed(t *testing.T) {
	t.Parallel()
	before := wall.Add(-time.Hour)
	allowance := unit.Got(unit.MilliCPU(9800))
	for name, c := range map[string]struct {
		before status.BE
		out    suppress.Output
		want   status.BE
	}{
		"cpuset": {
			status.BE{Mode: "off", Since: before},
			suppress.Output{Mode: suppress.CPUSet, CPUs: topo.Range(0, 9), Quota: unit.Unlimited, Allowance: allowance, Reason: "why"},
			status.BE{Mode: "cpuset", CPUs: "0-9", Limit: ptr(unit.MilliCPU(10000)), Allowance: ptr(unit.MilliCPU(9800)), Reason: "why", Since: wall},
		},
		"the same again": {
			status.BE{Mode: "cpuset", CPUs: "0-9", Since: before},
			suppress.Output{Mode: suppress.CPUSet, CPUs: topo.Range(0, 9), Reason: "not measured"},
			status.BE{Mode: "cpuset", CPUs: "0-9", Limit: ptr(unit.MilliCPU(10000)), Reason: "not measured", Since: before},
		},
		"quota": {
			status.BE{Mode: "cfsQuota", Quota: 900000, Since: before},
			suppress.Output{Mode: suppress.Quota, Quota: 980000, Allowance: allowance},
			status.BE{Mode: "cfsQuota", Quota: 980000, Limit: ptr(unit.MilliCPU(9800)), Allowance: ptr(unit.MilliCPU(9800)), Since: wall},
		},
		"off":              {status.BE{}, suppress.Output{Mode: suppress.Off, Quota: unit.Unlimited}, status.BE{Mode: "off", Since: wall}},
		"before the first": {status.BE{}, suppress.Output{Quota: unit.Unlimited}, status.BE{Mode: "unknown", Since: wall}},
	} {
		if d := cmp.Diff(c.want, Suppressed(c.before, &c.out, wall)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
