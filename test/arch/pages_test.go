// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	// makeCommand is a command of a page: in backquotes, or indented as a block of its own. "make sure" in a sentence is none.
	makeCommand = regexp.MustCompile("(?m)(?:`|^    +)(?:sudo )?make ([a-z][a-z-]*)")
)

// TestPromisedPagesExist: who leaves finds why it was decided so (each decision of the architecture page that is expensive to change has its record),
// and by what right the code may be used.
func TestPromisedPagesExist(t *testing.T) {
	t.Parallel()
	records, err := filepath.Glob("../../docs/adr/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var titles []string
	for _, path := range records {
		title, _, _ := strings.Cut(text(t, path), "\n")
		titles = append(titles, title)
	}
	for _, decision := range []string{"(D2)", "(D4)", "(D5)", "(D6)", "(D7)", "(D8)", "(D9)", "(D13)"} {
		if !strings.Contains(strings.Join(titles, "\n"), decision) {
			t.Errorf("no record of docs/adr is headed %s: %q", decision, titles)
		}
	}
	for path, says := range map[string]string{
		"LICENSE": "Apache License\n                           Version 2.0", "README.md": "make demo", "CONTRIBUTING.md": "make test",
		"docs/architecture.md": "Rooms", "docs/reference/knobs.md": "memory.high",
	} {
		if !strings.Contains(text(t, "../../"+path), says) {
			t.Errorf("%s does not say %q", path, says)
		}
	}
}

// TestPagesNameTargetsThatExist: a command of the pages is one of the Makefile's.
func TestPagesNameTargetsThatExist(t *testing.T) {
	t.Parallel()
	targets := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(text(t, "../../Makefile"), -1) {
		targets[m[1]] = true
	}
	found := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		pages, err := filepath.Glob("../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			for _, m := range makeCommand.FindAllStringSubmatch(text(t, page), -1) {
				if found++; !targets[m[1]] {
					t.Errorf("%s: the Makefile has no target %q", page, m[1])
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("%d commands found: the search is wrong", found)
	}
}
