// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"fmt"
	"strings"
	"testing"
)

func FuzzParseVersion(f *testing.F) {
	f.Add("v1.7.27-rc.1")
	f.Add("2.4.2+ds1")
	f.Add("1.x.3")
	f.Fuzz(func(t *testing.T, s string) {
		v, good := parseVersion(s)
		if !good {
			return
		}
		if again, ok := parseVersion(fmt.Sprintf("v%d.%d.%d", v[0], v[1], v[2])); min(v[0], v[1], v[2]) >= 0 && (!ok || again != v) {
			t.Fatalf("%q is %v, which is read as %v", s, v, again)
		}
	})
}

func FuzzNRIDisabled(f *testing.F) {
	f.Add("[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = true # off\n")
	f.Add("[plugins.'io.containerd.nri.v1.nri']\ndisable=false\n[debug]\ndisable=true")
	f.Add("[[[\n=\n")
	f.Fuzz(func(t *testing.T, text string) {
		set, disabled := nriDisabled(text)
		if disabled && !set || set && !strings.Contains(text, "disable") {
			t.Fatalf("set %t, disabled %t", set, disabled)
		}
		// What another section says is not about NRI.
		if again, is := nriDisabled(text + "\n[plugins.\"other\"]\ndisable = true\n"); again != set || is != disabled {
			t.Fatalf("another section changes the answer to %t %t", again, is)
		}
	})
}
