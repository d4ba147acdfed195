// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// asProgram makes this test binary the program itself.
const asProgram = "KOORDRT_TEST_FUZZ_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// tests is a test file with functions of these names and bodies.
func tests(pkg string, functions ...string) string {
	return "package " + pkg + "\n\nimport \"testing\"\n\n" + strings.Join(functions, "\n\n") + "\n"
}

// quiet is a target that finds nothing, loud one that finds something at once.
func quiet(name string) string {
	return "func " + name + "(f *testing.F) { f.Fuzz(func(*testing.T, int) {}) }"
}

func loud(name string) string {
	return fmt.Sprintf("func %s(f *testing.F) { f.Add(1); f.Fuzz(func(t *testing.T, _ int) { t.Fatal(\"%s has found it\") }) }", name, name)
}

// module is a module with three targets: two in one package, one in an external test package of the same name.
func module(t *testing.T, more map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"go.mod":         "module example.test/m\n\ngo 1.21\n",
		"a/p/p.go":       "package p\n",
		"a/p/p_test.go":  tests("p", quiet("FuzzOne"), quiet("FuzzTwo"), "func TestNot(t *testing.T) { t.Fatal(\"no target\") }"),
		"b/p/p.go":       "package p\n",
		"b/p/x_test.go":  tests("p_test", quiet("FuzzThree")),
		"none/n.go":      "package none\n\n// FuzzNot is no target: this file is no test.\nfunc FuzzNot() {}\n",
		"none/n_test.go": tests("none", "func TestNone(t *testing.T) {}"),
	}
	for name, text := range more {
		files[name] = text
	}
	for name, text := range files {
		if text == "" {
			continue
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var told = regexp.MustCompile(`(?m)^fuzz +\d+/\d+ (\S+) +(\S+) in \d+s$`)

// Every target of every package is found and run, and one that finds something is named with what it says; what cannot be
// run is no success.
func TestFuzz(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		more map[string]string
		args []string
		// ran are the targets that are told as done, err parts of the complaint; none for success.
		ran, err []string
	}{
		"all":   {nil, nil, []string{"FuzzOne example.test/m/a/p", "FuzzThree example.test/m/b/p", "FuzzTwo example.test/m/a/p"}, nil},
		"match": {nil, []string{"-match", "T"}, []string{"FuzzThree example.test/m/b/p", "FuzzTwo example.test/m/a/p"}, nil},
		"found": {map[string]string{"b/p/x_test.go": tests("p_test", loud("FuzzThree"))}, []string{"-match", "Three"}, nil,
			[]string{"example.test/m/b/p FuzzThree", "FuzzThree has found it"}},
		"not compiled": {map[string]string{"b/p/x_test.go": tests("p_test", quiet("FuzzThree"), "func Fuzz {")}, nil, nil, []string{"x_test.go"}},
		"no targets":   {map[string]string{"a/p/p_test.go": "", "b/p/x_test.go": ""}, nil, nil, []string{"the search is wrong"}},
		"no module":    {map[string]string{"go.mod": ""}, nil, nil, []string{"list packages"}},
		"bad length":   {nil, []string{"-for", "soon", "-match", "One"}, nil, []string{"FuzzOne"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"-for", "3x"}, c.args...)...)
			cmd.Dir, cmd.Env = module(t, c.more), append(os.Environ(), asProgram+"=1", "GOFLAGS=-buildvcs=false", "GOWORK=off")
			var out, complaint strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &complaint
			err := cmd.Run()
			if (err == nil) != (c.err == nil) {
				t.Errorf("exit status: %v", err)
			}
			for _, part := range c.err {
				if !strings.Contains(complaint.String(), part) {
					t.Errorf("the complaint does not say %q", part)
				}
			}
			var ran []string
			for _, m := range told.FindAllStringSubmatch(out.String(), -1) {
				ran = append(ran, m[1]+" "+m[2])
			}
			slices.Sort(ran)
			if !slices.Equal(ran, c.ran) {
				t.Errorf("ran %q, want %q", ran, c.ran)
			}
			if t.Failed() {
				t.Logf("output:\n%s%s", out.String(), complaint.String())
			}
		})
	}
}
