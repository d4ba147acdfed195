// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
)

func TestKidledStopped(t *testing.T) {
	t.Parallel()
	const period, below = "kernel/mm/kidled/scan_period_in_seconds", "kernel/mm/kidled/use_hierarchy"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"runs":        {map[string]string{period: "5\n", below: "1\n"}, ""},
		"stopped":     {map[string]string{period: "0\n", below: "1\n"}, "kidled is stopped: "},
		"each alone":  {map[string]string{period: "5\n", below: "0\n"}, "kidled leaves out what is below a cgroup: "},
		"not known":   {nil, ""},
		"another one": {map[string]string{period: "often\n"}, ""},
	} {
		got := FS(kerneltest.Lay(t, c.files, "")).KidledStopped()
		if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
