// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	labTag   = regexp.MustCompile(`(?m)^//go:build .*\blab\b`)
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	vmMatch  = regexp.MustCompile(`vm\.Options\{[^}]*\}, "(\^[^"/]+)`)
	makeLane = regexp.MustCompile(`(?m)^\t\$\(LAB\)(?: -run '([^']+)')? (.+)$`)
)

// TestEveryLabTestHasALane: a test behind the tag lab that no lane of the Makefile and no VM of test/e2e names would be
// skipped silently, for ever.
func TestEveryLabTestHasALane(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	type lane struct{ dirs, run string }
	var lanes []lane
	for _, m := range makeLane.FindAllStringSubmatch(string(makefile), -1) {
		lanes = append(lanes, lane{dirs: m[2], run: m[1]})
	}
	vms, err := os.ReadFile("../e2e/vm_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var guests []*regexp.Regexp
	for _, m := range vmMatch.FindAllStringSubmatch(string(vms), -1) {
		guests = append(guests, regexp.MustCompile(m[1]))
	}
	if len(lanes) < 4 || len(guests) < 4 {
		t.Fatalf("%d lanes and %d VMs found: the patterns of this test are out of date", len(lanes), len(guests))
	}
	covered := func(dir, name string) bool {
		if strings.HasPrefix(name, "TestGuest") {
			for _, g := range guests {
				if g.MatchString(name) {
					return true
				}
			}
			return false
		}
		for _, l := range lanes {
			for _, d := range strings.Fields(l.dirs) {
				if strings.TrimPrefix(d, "./") == dir && (l.run == "" || regexp.MustCompile(l.run).MatchString(name)) {
					return true
				}
			}
		}
		return false
	}
	n := 0
	goFiles(t, func(path string, src []byte) {
		if !strings.HasSuffix(path, "_test.go") || !labTag.Match(src) {
			return
		}
		dir, err := filepath.Rel("../..", filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllStringSubmatch(string(src), -1) {
			n++
			if name := m[1]; name != "TestMain" && !covered(dir, name) {
				t.Errorf("%s: no lane runs %s", path, name)
			}
		}
	})
	if n < 20 {
		t.Errorf("only %d lab tests found: the search is wrong", n)
	}
}
