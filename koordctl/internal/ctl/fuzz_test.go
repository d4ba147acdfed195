// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"strings"
	"testing"
)

func FuzzTOMLKey(f *testing.F) {
	f.Add("[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = true # off\n")
	f.Add("[plugins.'io.containerd.nri.v1.nri']\ndisable=false\n[debug]\ndisable=true")
	f.Add("[[[\n=\n")
	f.Fuzz(func(t *testing.T, text string) {
		set, disabled := tomlKey(text, nriSection, "disable")
		if disabled != "" && !set || set && !strings.Contains(text, "disable") {
			t.Fatalf("set %t, disabled %q", set, disabled)
		}
		// What another section says is not about NRI.
		if again, is := tomlKey(text+"\n[plugins.\"other\"]\ndisable = true\n", nriSection, "disable"); again != set || is != disabled {
			t.Fatalf("another section changes the answer to %t %q", again, is)
		}
	})
}
