// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package drift

import (
	"testing"

	"github.com/koord-rt/koord-rt/model/plan"
)

func TestAttribute(t *testing.T) {
	t.Parallel()
	pages := func(a, b plan.Value) bool { return a.Int()>>12 == b.Int()>>12 }
	runtime, systemd := Claim{Runtime, plan.Int(8192)}, Claim{Systemd, plan.Int(4096)}
	for name, c := range map[string]struct {
		found  int64
		claims []Claim
		want   string
	}{
		"the runtime's":               {8192, []Claim{runtime, systemd}, "runtime"},
		"systemd's":                   {4096, []Claim{runtime, systemd}, "systemd"},
		"nobody's":                    {12288, []Claim{runtime, systemd}, "someone"},
		"nobody is known":             {4096, nil, "someone"},
		"two have the same":           {8192, []Claim{runtime, {Systemd, plan.Int(8192)}}, "runtime-or-systemd"},
		"as the kernel would hold":    {4097, []Claim{{Kubelet, plan.Int(1)}, systemd}, "systemd"},
		"the kubelet's and systemd's": {4096, []Claim{{Kubelet, plan.Int(4096)}, systemd}, "kubelet-or-systemd"},
	} {
		if got := Attribute(plan.Int(c.found), c.claims, pages).String(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Every set has a name of its own, so that none is counted as another.
func TestNames(t *testing.T) {
	t.Parallel()
	seen := map[string]Source{}
	for s := range Source(NumSources) {
		if other, twice := seen[s.String()]; twice {
			t.Errorf("%d and %d are both %s", s, other, s)
		}
		seen[s.String()] = s
	}
}
