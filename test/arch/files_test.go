// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// goFiles visits every Go file of the tree.
func goFiles(t *testing.T, visit func(path string, src []byte)) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		visit(path, src)
		return nil
	})
	if err != nil {
		t.Fatalf("walk the tree: %v", err)
	}
}

func TestFilesCarryLicenceAndKeepShort(t *testing.T) {
	t.Parallel()
	n := 0
	goFiles(t, func(path string, src []byte) {
		n++
		if !bytes.HasPrefix(src, []byte("// SPDX-License-Identifier: Apache-2.0\n// Copyright The koord-rt Authors\n")) {
			t.Errorf("%s does not begin with the two licence lines", path)
		}
		if lines := bytes.Count(src, []byte("\n")); lines > 600 {
			t.Errorf("%s has %d lines; 600 is the hard limit", path, lines)
		}
	})
	if n < 20 {
		t.Fatalf("only %d Go files found: the walk is wrong", n)
	}
}

// unfinished matches comments that announce missing work.
var unfinished = regexp.MustCompile(`(?m)//\s*(TODO|FIXME|XXX)\b`)

func TestNoUnfinishedWork(t *testing.T) {
	t.Parallel()
	goFiles(t, func(path string, src []byte) {
		if loc := unfinished.Find(src); loc != nil {
			t.Errorf("%s: %q: finish it or open an issue", path, loc)
		}
	})
}

// TestNoInitAndNoWrittenGlobals: package state that changes after start makes tests depend on their order.
func TestNoInitAndNoWrittenGlobals(t *testing.T) {
	t.Parallel()
	goFiles(t, func(path string, src []byte) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("parse %s: %v", path, err)
			return
		}
		globals := map[string]bool{}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.Name == "init" && d.Recv == nil {
					t.Errorf("%s has an init function", path)
				}
			case *ast.GenDecl:
				if d.Tok != token.VAR {
					continue
				}
				for _, s := range d.Specs {
					for _, name := range s.(*ast.ValueSpec).Names {
						globals[name.Name] = name.Name != "_"
					}
				}
			}
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			reportWrites(t, path, fn, globals)
		}
	})
}

// reportWrites flags plain assignments to package variables; names declared again inside the function are local.
func reportWrites(t *testing.T, path string, fn *ast.FuncDecl, globals map[string]bool) {
	t.Helper()
	local := map[string]bool{}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			for _, name := range n.Names {
				local[name.Name] = true
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				local[name.Name] = true
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					local[id.Name] = true
				}
			}
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				id, ok := l.(*ast.Ident)
				if !ok {
					continue
				}
				if n.Tok == token.DEFINE {
					local[id.Name] = true
				} else if globals[id.Name] && !local[id.Name] {
					t.Errorf("%s: %s writes the package variable %s", path, fn.Name.Name, id.Name)
				}
			}
		}
		return true
	})
}

func TestGoModHasNoReplace(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if regexp.MustCompile(`(?m)^\s*replace\b`).Match(mod) {
		t.Error("go.mod has a replace directive: `go install …@latest` would fail")
	}
}
