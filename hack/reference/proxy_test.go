// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/config"
)

// The flags that override no setting are those that the program defines by name.
func TestOwnFlagsAgreeWithTheProgram(t *testing.T) {
	t.Parallel()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "daemon", "program", "program.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !strings.HasSuffix(method(call), "Var") || len(call.Args) < 2 {
			return true
		}
		if lit, ok := call.Args[1].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			name, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Error(err)
			}
			got = append(got, name)
		}
		return true
	})
	for _, f := range ownFlags {
		want = append(want, f[0])
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the program defines %q, the page says %q", got, want)
	}
}

// Every flag of upstream's is there, and each flag leads to its own key.
func TestFlagsAreUpstreams(t *testing.T) {
	t.Parallel()
	c := config.DefaultProxy()
	names, keys := map[string]bool{}, map[string]string{}
	for _, f := range c.Flags() {
		names[f.Name] = true
		key, err := settingOf(f.Name)
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := keys[key]; taken {
			t.Errorf("%s and %s both set %s", f.Name, other, key)
		}
		keys[key] = f.Name
	}
	for name := range upstreamFlags {
		if !names[name] {
			t.Errorf("upstream's flag %s is missing", name)
		}
	}
	if _, err := settingOf("no-such-flag"); err == nil {
		t.Error("a flag that is not there has a key")
	}
}
