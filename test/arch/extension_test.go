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

// collectorLine is one of the table of koordlet's collectors, collectorMade what makes one.
var (
	collectorLine = regexp.MustCompile(`(?m)^\t\{(?:"\w+"|\w+), \w+, (new\w+)\},`)
	collectorMade = regexp.MustCompile(`(?m)^func (new\w+)\(\w*\s*\*machine\) \(`)
)

// TestACollectorIsAFileAndALine: each line of the table is made in a file that makes no other, and each file that makes one has its line.
func TestACollectorIsAFileAndALine(t *testing.T) {
	t.Parallel()
	const dir = "../../koordlet/internal/collect"
	table, err := os.ReadFile(filepath.Join(dir, "collector.go"))
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]int{}
	for _, m := range collectorLine.FindAllStringSubmatch(string(table), -1) {
		lines[m[1]]++
	}
	if len(lines) < 15 {
		t.Fatalf("only %d collectors found: the search is wrong", len(lines))
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]bool{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		here := collectorMade.FindAllStringSubmatch(string(src), -1)
		if len(here) > 1 {
			t.Errorf("%s makes %d collectors: each has a file of its own", path, len(here))
		}
		for _, m := range here {
			made[m[1]] = true
			if lines[m[1]] != 1 {
				t.Errorf("%s: %s has %d lines in the table of collector.go, want one", path, m[1], lines[m[1]])
			}
		}
	}
	for name := range lines {
		if !made[name] {
			t.Errorf("no file of %s makes %s of the table", dir, name)
		}
	}
}
