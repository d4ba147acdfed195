// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
)

const root = "../.."

// The pages in docs/reference are what this code would write.
func TestPagesAreUpToDate(t *testing.T) {
	t.Parallel()
	var names []string
	for _, p := range pages() {
		names = append(names, p.name)
		want, err := p.render(root)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(root, "docs", "reference", p.name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is out of date: run `make generate`", p.name)
		}
		again, err := p.render(root)
		if err != nil || again != want {
			t.Errorf("%s differs between two runs: %v", p.name, err)
		}
	}
	files, err := os.ReadDir(filepath.Join(root, "docs", "reference"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains(names, f.Name()) {
			t.Errorf("docs/reference/%s is written by nobody", f.Name())
		}
	}
}

// Every knob and feature has its line.
func TestOwnersAreComplete(t *testing.T) {
	t.Parallel()
	for k := plan.KnobNone + 1; k < plan.NumKnobs; k++ {
		if _, ok := owners[k]; !ok {
			t.Errorf("knob %s has no line in owners", k)
		}
	}
	for _, f := range protocol.Features() {
		if purposes[f] == "" || len(knobsOf(f)) == 0 {
			t.Errorf("feature %s has no purpose or no knob", f)
		}
	}
}

// What the policies name literally in one call, Set(protocol.FeatureX, plan.Knob, …), is in owners.
func TestOwnersAgreeWithThePolicies(t *testing.T) {
	t.Parallel()
	pairs := 0
	err := filepath.WalkDir(filepath.Join(root, "policy"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			feature, knob := selected(call, "protocol", "Feature"), selected(call, "plan", "")
			if feature == "" || knob == "" || !strings.HasPrefix(method(call), "Set") {
				return true
			}
			pairs++
			if !ownsByName(t, knob, feature) {
				t.Errorf("%s: %s plans %s; add it to owners", path, feature, knob)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if pairs < 10 {
		t.Errorf("only %d calls were found: the search is wrong", pairs)
	}
}

func method(c *ast.CallExpr) string {
	if s, ok := c.Fun.(*ast.SelectorExpr); ok {
		return s.Sel.Name
	}
	return ""
}

// selected is the name of the first argument pkg.Name whose name has the prefix.
func selected(c *ast.CallExpr, pkg, prefix string) string {
	for _, a := range c.Args {
		s, ok := a.(*ast.SelectorExpr)
		if !ok {
			continue
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Name == pkg && strings.HasPrefix(s.Sel.Name, prefix) {
			return s.Sel.Name
		}
	}
	return ""
}

// goNames are the features' and knobs' names in the code, read from where they are declared.
func goNames(t *testing.T, path, first string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		var out []string
		for _, s := range g.Specs {
			out = append(out, s.(*ast.ValueSpec).Names[0].Name)
		}
		if out[0] == first {
			return out
		}
	}
	t.Fatalf("%s has no constants from %s on", path, first)
	return nil
}

func ownsByName(t *testing.T, knob, feature string) bool {
	t.Helper()
	k := slices.Index(goNames(t, "model/plan/knob.go", "KnobNone"), knob)
	f := slices.Index(goNames(t, "api/protocol/feature.go", "FeatureBatch"), feature)
	return k > 0 && f >= 0 && slices.Contains(owners[plan.Knob(k)], protocol.Feature(f))
}

// planned is a line of a scenario's plan: level name knob[key] = value (feature: reason).
var planned = regexp.MustCompile(`(?m)^(?:node|group|qos|pod|container) .*?([a-z_.]+)(?:\[[^\]]*\])? = .* \(([a-z-]+): `)

// What the scenarios show to be planned is in owners.
func TestOwnersAgreeWithTheScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "test", "scenario", "testdata", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range planned.FindAllStringSubmatch(string(data), -1) {
			lines++
			k, ok := plan.ParseKnob(m[1])
			f, known := protocol.ParseFeature(m[2])
			if !ok || !known || !slices.Contains(owners[k], f) {
				t.Errorf("%s: %s is planned by %s, which owners does not say", filepath.Base(path), m[1], m[2])
			}
		}
	}
	if lines < 50 {
		t.Errorf("only %d planned values were found: the search is wrong", lines)
	}
}

func TestProse(t *testing.T) {
	t.Parallel()
	src := &source{texts: map[string]string{"PolicyNone": "none", "PolicyAuto": "auto"}, order: []string{"PolicyNone", "PolicyAuto"}}
	for _, c := range [][3]string{
		{"Socket", "Socket is the runtime's.", "The runtime's."},
		{"Policy", "Policy is one of the Policy* constants, default [PolicyNone].", "One of `none`, `auto`, default `none`."},
		{"A", "A and B, 0..100.", "A and B, 0..100."},
		{"Percent", "Percent, 0..100.", "0..100."},
		{"Reserve", "Reserved is another word.", "Reserved is another word."},
		{"X", "", ""},
	} {
		if got := src.prose(c[0], c[1]); got != c[2] {
			t.Errorf("%q: %q, want %q", c[1], got, c[2])
		}
	}
}

func TestTableEscapesBars(t *testing.T) {
	t.Parallel()
	if got := table([]string{"a"}, [][]string{{"x|y"}}); got != "| a |\n| --- |\n| x\\|y |\n" {
		t.Errorf("%q", got)
	}
}
