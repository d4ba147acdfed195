// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// suite is what a folder's tests declare, by name: functions, variables and constants.
type suite map[string][]ast.Node

// suiteOf reads the texts of test files.
func suiteOf(t *testing.T, files ...string) suite {
	t.Helper()
	s := suite{}
	for _, src := range files {
		file, err := parser.ParseFile(token.NewFileSet(), "", src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					s[d.Name.Name] = append(s[d.Name.Name], d)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						for _, n := range v.Names {
							s[n.Name] = append(s[n.Name], v)
						}
					}
				}
			}
		}
	}
	return s
}

// subtests are what a test may call its subtests, as far as that stands in it, or in the functions and tables of its package that it uses, methods not
// counted: the texts that are given to Run, and those of tables. scenarios: it gives Run the Name of something, as whoever runs scenarios does.
type subtests struct {
	names     map[string]bool
	scenarios bool
}

func (s suite) subtests(test string) subtests {
	out := subtests{names: map[string]bool{}}
	name := func(e ast.Expr) {
		if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if text, err := strconv.Unquote(l.Value); err == nil {
				out.names[strings.ReplaceAll(text, " ", "_")] = true // as it is printed
			}
		}
	}
	seen := map[ast.Node]bool{}
	var use func(nodes []ast.Node)
	var look func(n ast.Node) bool
	look = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr: // of a field or a method, whose name may be a function's
			ast.Inspect(n.X, look)
			return false
		case *ast.Ident:
			use(s[n.Name])
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Run" && len(n.Args) > 0 {
				name(n.Args[0])
				ast.Inspect(n.Args[0], func(n ast.Node) bool {
					of, ok := n.(*ast.SelectorExpr)
					out.scenarios = out.scenarios || ok && of.Sel.Name == "Name"
					return true
				})
			}
		case *ast.CompositeLit:
			if list, ok := n.Type.(*ast.ArrayType); ok {
				if of, ok := list.Elt.(*ast.Ident); ok && of.Name == "string" {
					return true // no table
				}
			}
			for _, e := range n.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok {
					name(kv.Key)
					e = kv.Value
				}
				name(e)
			}
		}
		return true
	}
	use = func(nodes []ast.Node) {
		for _, n := range nodes {
			if !seen[n] {
				seen[n] = true
				ast.Inspect(n, look)
			}
		}
	}
	use(s[test])
	return out
}

// has reports whether a path of subtests, as it is printed, may be one of the test's.
func (s subtests) has(path string, scenario func(name string) bool) bool {
	first, version, nested := strings.Cut(path, "/")
	if s.scenarios && scenario(first) {
		return !nested || version == "v1" || version == "v2"
	}
	for one := range strings.SplitSeq(path, "/") {
		if !s.names[one] {
			return false
		}
	}
	return true
}

// A subtest is looked up under the test that is named, where a table of its own, one that it shares, and scenarios are found, and another test's are not.
func TestSubtestsAreTheTestsOwn(t *testing.T) {
	t.Parallel()
	s := suiteOf(t, `package p

func TestA(t *testing.T) {
	for _, s := range []struct{ name string }{{"server away"}, {name: "Killed"}} {
		t.Run(s.name, nil)
	}
	t.Run("by itself", nil)
	x.TestB()
	_ = []string{"no subtest"}
	t.Log("nor this")
}

func TestB(t *testing.T) { shared(t); runsScenarios(t) }

func TestC(t *testing.T) { t.Run(table, nil); t.Run("outer", func(t *testing.T) { shared(t) }) }
`, `package p

const unused = "unused"

func shared(t *testing.T) {
	for name := range cases {
		t.Run(name, nil)
	}
}

var cases = map[string]int{"Restore": 1}

func runsScenarios(t *testing.T) { t.Run(s.Name+"/"+version, nil) }
`)
	scenario := func(name string) bool { return name == "gpu" }
	for _, c := range []struct {
		test, path string
		want       bool
	}{
		{"TestA", "server_away", true},
		{"TestA", "Killed", true},
		{"TestA", "by_itself", true},
		{"TestA", "Restore", false},
		{"TestA", "gpu", false},
		{"TestA", "no_subtest", false},
		{"TestA", "nor_this", false},
		{"TestB", "Restore", true},
		{"TestB", "Killed", false},
		{"TestB", "gpu", true},
		{"TestB", "gpu/v2", true},
		{"TestB", "gpu/v3", false},
		{"TestB", "llc", false},
		{"TestC", "outer/Restore", true},
		{"TestC", "outer/Killed", false},
		{"TestC", "unused", false},
		{"TestD", "Restore", false},
	} {
		if got := s.subtests(c.test).has(c.path, scenario); got != c.want {
			t.Errorf("%s has %s: %v", c.test, c.path, got)
		}
	}
}
