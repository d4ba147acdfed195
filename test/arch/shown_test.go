// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// shownNames are what the pages of docs/shown name: "test/e2e.TestHostLifecycle/Restore", "make demo", "go run ./test/bench -only pairs".
var shownNames = regexp.MustCompile("`(?:([\\w./-]+)\\.((?:Test|Fuzz|Benchmark)\\w+)((?:/[^`]*)?)|make ([\\w-]+)|go run ./test/bench -only ([\\w,]+))`")

// TestShownTestsExist: a page that says which test shows what is worse than none when a test goes or is called otherwise. A subtest's name
// must be one that the named test may call a subtest (subtests), or a scenario's where it runs those.
func TestShownTestsExist(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/shown/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	makefile, bench := text(t, "../../Makefile"), text(t, "../bench/main.go")
	folders := map[string]suite{}
	scenario := func(name string) bool {
		_, err := os.Stat("../scenario/testdata/" + name + ".txtar")
		return err == nil
	}
	n := 0
	for _, page := range pages {
		for _, m := range shownNames.FindAllStringSubmatch(text(t, page), -1) {
			n++
			folder, name, subs, target, only := m[1], m[2], m[3], m[4], m[5]
			switch {
			case target != "":
				if !strings.Contains(makefile, "\n"+target+":") {
					t.Errorf("%s: the Makefile has no target %s", page, target)
				}
			case only != "":
				for name := range strings.SplitSeq(only, ",") {
					if !strings.Contains(bench, `{"`+name+`", (*bench)`) {
						t.Errorf("%s: there is no benchmark %s", page, name)
					}
				}
			default:
				tests, known := folders[folder]
				if !known {
					tests = suiteOf(t, testsOf(t, folder)...)
					folders[folder] = tests
				}
				if len(tests[name]) == 0 {
					t.Errorf("%s: there is no %s in %s", page, name, folder)
				} else if subs != "" && !tests.subtests(name).has(subs[1:], scenario) {
					t.Errorf("%s: %s.%s has no %q", page, folder, name, subs[1:])
				}
			}
		}
	}
	if n < 300 {
		t.Errorf("only %d names were found: have the pages another form?", n)
	}
}

// testsOf are the texts of a folder's tests.
func testsOf(t *testing.T, folder string) (all []string) {
	t.Helper()
	files, err := filepath.Glob("../../" + folder + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		all = append(all, text(t, f))
	}
	return all
}

func text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// guestShown is a guest's test on a page, with its subtest if one is named, and the sign behind it.
var guestShown = regexp.MustCompile("`test/e2e\\.(TestGuest\\w+)((?:/[^/`]*)?)[^`]*`(†?)")

// TestShownSaysWhatIsLong: a guest's test that make test leaves to lab-vm-full is marked with †, and no other. One that make test runs in part is not.
// What it runs with cgroup v1 only counts in a row that names that machine.
func TestShownSaysWhatIsLong(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/shown/*.md")
	if err != nil {
		t.Fatal(err)
	}
	short, marked := vmTests(t, "TestVM("), 0
	for _, page := range pages {
		for row := range strings.Lines(text(t, page)) {
			for _, m := range guestShown.FindAllStringSubmatch(row, -1) {
				name, sub, sign := m[1], strings.TrimPrefix(m[2], "/"), m[3] != ""
				runs := slices.ContainsFunc(short, func(g guestTests) bool {
					return g.runs(name, sub) && (!g.v1 || strings.Contains(row, g.machine))
				})
				if sign {
					marked++
				}
				if sign == runs {
					t.Errorf("%s: make test runs %s %s: %v, and it is marked: %v", filepath.Base(page), name, sub, runs, sign)
				}
			}
		}
	}
	if marked < 20 {
		t.Errorf("only %d names are marked: have the pages another form?", marked)
	}
}
