// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestPureCoreHasNoGoroutines: the rooms that decide, and those of the values that they decide by, start nothing and lock nothing, in their tests
// neither: make test-unit has no race detector for them.
func TestPureCoreHasNoGoroutines(t *testing.T) {
	t.Parallel()
	n := 0
	for _, room := range []string{"../../policy", "../../model"} {
		err := filepath.WalkDir(room, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			n++
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			for _, i := range file.Imports {
				if name := strings.Trim(i.Path.Value, `"`); name == "sync" || name == "sync/atomic" {
					t.Errorf("%s imports %s", path, name)
				}
			}
			ast.Inspect(file, func(node ast.Node) bool {
				if _, starts := node.(*ast.GoStmt); starts {
					t.Errorf("%s starts a goroutine", path)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 100 {
		t.Errorf("only %d files found: the search is wrong", n)
	}
}
