// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package systemd

import (
	"strings"
	"testing"
)

func FuzzUnit(f *testing.F) {
	f.Add("/kubepods.slice/kubepods-pod1.slice/cri-containerd-a.scope")
	f.Add("../x.slice/..")
	f.Add("")
	f.Fuzz(func(t *testing.T, cgroup string) {
		unit, err := Unit(cgroup)
		if (unit == "") != (err != nil) || strings.Contains(unit, "/") || !strings.Contains(cgroup, unit) {
			t.Fatalf("%q is unit %q, %v", cgroup, unit, err)
		}
	})
}
