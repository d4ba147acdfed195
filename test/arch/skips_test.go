// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	skipCall = regexp.MustCompile(`\b[tf]\.Skip(f|Now)?\(`)
	guestDir = regexp.MustCompile(`(?m)^\t"([\w/-]+)": +\{`)
)

// skipping are the files that may skip a test themselves, and why.
var skipping = map[string]string{
	"kernel/kerneltest/proof.go": "every other test steps aside through it, with a proof",
	"test/e2e/machine_test.go":   "core scheduling: proved by the errno and the kernel's configuration, a guest's by the VM's host",
}

// TestNoSilentSkip: a test that is skipped says nothing, so the kernel has to.
func TestNoSilentSkip(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	goFiles(t, func(path string, src []byte) {
		rel, err := filepath.Rel("../..", path)
		if err != nil {
			t.Fatal(err)
		}
		if !skipCall.Match(src) {
			return
		}
		found[rel] = true
		if skipping[rel] == "" {
			t.Errorf("%s skips a test without a proof: use StepAside or LeaveToVM of kernel/kerneltest", rel)
		}
	})
	for file := range skipping {
		if !found[file] {
			t.Errorf("%s skips nothing: take it off the list", file)
		}
	}
}

// TestLeftToVM: a test that may be left to the VM, itself or through a function of its package's tests, is in the table of those
// that run there.
func TestLeftToVM(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("../e2e/kernel_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(src), "var kernelPackages = ")
	table, _, _ = strings.Cut(table, "\n}\n")
	starts := guestDir.FindAllStringSubmatchIndex(table, -1)
	runs := map[string]string{}
	for i, m := range starts {
		end := len(table)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		runs[table[m[2]:m[3]]] = table[m[1]:end]
	}
	calls := map[string]map[string][]string{}
	goFiles(t, func(path string, src []byte) {
		if dir := filepath.Dir(path); strings.HasSuffix(path, "_test.go") {
			if calls[dir] == nil {
				calls[dir] = map[string][]string{}
			}
			addCalls(t, path, src, calls[dir])
		}
	})
	n := 0
	for dir, of := range calls {
		rel, err := filepath.Rel("../..", dir)
		if err != nil {
			t.Fatal(err)
		}
		for name := range of {
			if !strings.HasPrefix(name, "Test") || !reaches(of, name, map[string]bool{}) {
				continue
			}
			n++
			if !strings.Contains(runs[rel], `"`+name+`"`) {
				t.Errorf("%s of %s may be left to the VM, but kernelPackages of test/e2e does not have it", name, rel)
			}
		}
	}
	if n < 10 || len(runs) < 10 {
		t.Errorf("%d tests and %d packages found: the patterns of this test are out of date", n, len(runs))
	}
}

// addCalls notes what each function of a file calls, by its last name, and kerneltest's by both.
func addCalls(t *testing.T, path string, src []byte, calls map[string][]string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch f := call.Fun.(type) {
			case *ast.Ident:
				calls[fn.Name.Name] = append(calls[fn.Name.Name], f.Name)
			case *ast.SelectorExpr:
				name := f.Sel.Name
				if x, ok := f.X.(*ast.Ident); ok && x.Name == "kerneltest" {
					name = "kerneltest." + name
				}
				calls[fn.Name.Name] = append(calls[fn.Name.Name], name)
			}
			return true
		})
	}
}

// reaches says whether a function comes to a call that may leave the test to the VM.
func reaches(calls map[string][]string, name string, seen map[string]bool) bool {
	if seen[name] {
		return false
	}
	seen[name] = true
	return slices.ContainsFunc(calls[name], func(f string) bool {
		return f == "kerneltest.LeaveToVM" || f == "kerneltest.Unified" || reaches(calls, f, seen)
	})
}
