// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"testing"
)

// FuzzSchemata: a line is the same as itself, and nothing panics.
func FuzzSchemata(f *testing.F) {
	f.Add("    L3:0=fffff;1=fffff\n    MB:0=100;1=100\n", "L3")
	f.Add("MB:0=2048", "MB")
	f.Fuzz(func(t *testing.T, content, resource string) {
		line, ok := schemataLine(content, resource)
		if !ok {
			return
		}
		if _, valid := domains(resource, line); valid != sameDomains(resource, line, line) {
			t.Fatalf("%q of %q is valid: %v", line, content, valid)
		}
	})
}

// FuzzPIDs: ids are positive or the content is refused.
func FuzzPIDs(f *testing.F) {
	f.Add("1\n22\n0\n")
	f.Add("-5")
	f.Fuzz(func(t *testing.T, content string) {
		pids, err := parsePIDs(nil, content)
		for _, pid := range pids {
			if pid <= 0 || err != nil {
				t.Fatalf("%q gave %v, %v", content, pids, err)
			}
		}
	})
}

func TestSchemataLines(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		resource, want, have string
		same                 bool
	}{
		{"L3", "0=ff;1=ff", "0=000ff;1=000ff", true}, {"L3", "L3:0=ff", "0=ff;1=fffff", true}, {"L3", "2=ff", "0=ff", false},
		{"MB", "0=50", "0= 50;1=100", true}, {"MB", "0=50", "0=40", false}, {"L3", "", "0=ff", false}, {"L3", "0=zz", "0=ff", false},
	} {
		if got := sameDomains(tt.resource, tt.want, tt.have); got != tt.same {
			t.Errorf("sameDomains(%s, %q, %q) = %v", tt.resource, tt.want, tt.have, got)
		}
	}
	if pid := taskPID("/proc/12/stat"); pid != 12 {
		t.Errorf("pid %d", pid)
	}
}
