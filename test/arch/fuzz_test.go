// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unfuzzed are parsers without a fuzz target, by "directory.Name", and why.
var unfuzzed = map[string]string{
	"api/protocol.ParseQoS":           "looks a word up in a table",
	"api/protocol.ParsePriorityClass": "looks a word up in a table",
	"api/protocol.ParseFeature":       "looks a word up in a table",
	"adapt/hook.ParseKind":            "looks a word up in a table",
	"kernel/cgroup/v1.Parse":          "FuzzParse of kernel/cgroup calls it for every knob",
	"kernel/cgroup/v2.Parse":          "FuzzParse of kernel/cgroup calls it for every knob",

	"model/unit.ParseWeightFormula":    "looks a word up in a table",
	"daemon/logs.parseLevel":           "looks a word up in a table",
	"daemon/program.parse":             "reads the flags of whoever starts it",
	"cluster/internal/setup.Parse":     "reads the flags of whoever starts it",
	"cluster/slo/config.Number":        "FuzzParse reads configurations with them",
	"cri-proxy/internal/docker.decode": "adapt/docker reads the bodies, and is fuzzed",

	"koordlet/internal/amount.Quantity": "FuzzParse reads lists of them",
	"koordlet/internal/pods.instant":    "FuzzDecode reads pods with them",
	"koordlet/internal/window.decode":   "gives back the number that encode has made",
}

// unnamed are parsers of kernel/ whose documentation names no document, by "directory.Name", and why.
var unnamed = map[string]string{
	"kernel/cgroup.Parse": "asks that of the cgroup version",
	"kernel/tc.parseRoot": "reads what rootText has written",
}

// names finds what a parser goes by: a document or a header of the kernel, where there is none its source, a manual page, or an address.
var names = regexp.MustCompile(`Documentation/|\.rst\b|https://|README|include/uapi/linux/|\b(arch|mm)/[\w/]+\.c\b|\w\([25]\)`)

// parses are the names of functions that read text or messages of others.
var parses = regexp.MustCompile(`^(Parse|parse|Decode|decode|Unmarshal)`)

// source is what one directory has of parsers and of functions in its test files.
type source struct {
	parsers []string                 // names; a method's is that of its receiver's type
	bodies  map[string]*ast.FuncDecl // functions of the test files
	code    map[string]*ast.FuncDecl // functions of the others
}

// TestEveryParserIsFuzzed: an exported function Parse…, Decode… or Unmarshal… of what is installed is named in a fuzz target of its own
// directory, or in what that target calls there. So is an unexported one, for which it does as well that a function of its package calls it
// which the target names, directly or by others.
func TestEveryParserIsFuzzed(t *testing.T) {
	t.Parallel()
	dirs := map[string]*source{}
	goFiles(t, func(path string, text []byte) {
		dir, err := filepath.Rel("../..", filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		if room := strings.SplitN(dir, "/", 2)[0]; slices.Contains([]string{"hack", "test"}, room) {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if dirs[dir] == nil {
			dirs[dir] = &source{bodies: map[string]*ast.FuncDecl{}, code: map[string]*ast.FuncDecl{}}
		}
		dirs[dir].add(file, strings.HasSuffix(path, "_test.go"))
	})
	found := 0
	used := map[string]bool{}
	for dir, s := range dirs {
		fuzzed := s.fuzzed(s.bodies)
		within := s.fuzzed(s.bodies, s.code)
		for _, name := range s.parsers {
			found++
			key := dir + "." + name
			switch {
			case unfuzzed[key] != "" && fuzzed[name]:
				t.Errorf("%s is fuzzed: strike it off the list of exceptions", key)
			case unfuzzed[key] != "":
				used[key] = true
			case !fuzzed[name] && (ast.IsExported(name) || !within[name]):
				t.Errorf("%s: no fuzz target of %s calls it", key, dir)
			}
		}
	}
	for key := range unfuzzed {
		if !used[key] {
			t.Errorf("exception %s stands for nothing", key)
		}
	}
	if found < 160 {
		t.Errorf("only %d parsers found: the search is wrong", found)
	}
}

// TestEveryParserNamesItsDocument: who changes a parser of kernel/ finds in its documentation by what the kernel promises to write.
func TestEveryParserNamesItsDocument(t *testing.T) {
	t.Parallel()
	found := 0
	used := map[string]bool{}
	goFiles(t, func(path string, text []byte) {
		dir, err := filepath.Rel("../..", filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(dir, "kernel/") || strings.HasSuffix(path, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !parses.MatchString(f.Name.Name) {
				continue
			}
			found++
			switch key := dir + "." + f.Name.Name; {
			case unnamed[key] != "" && !names.MatchString(f.Doc.Text()):
				used[key] = true
			case !names.MatchString(f.Doc.Text()):
				t.Errorf("%s: the documentation of %s names no document", path, f.Name.Name)
			}
		}
	})
	for key := range unnamed {
		if !used[key] {
			t.Errorf("exception %s stands for nothing", key)
		}
	}
	if found < 50 {
		t.Errorf("only %d parsers found: the search is wrong", found)
	}
}

func (s *source) add(file *ast.File, test bool) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if test {
			s.bodies[f.Name.Name] = f
			continue
		}
		name := f.Name.Name
		s.code[name] = f
		if !parses.MatchString(name) {
			continue
		}
		if f.Recv != nil && strings.HasPrefix(name, "Unmarshal") {
			name = receiver(f) // nobody calls it by its name
		}
		s.parsers = append(s.parsers, name)
	}
}

// receiver is the name of a method's type.
func receiver(f *ast.FuncDecl) string {
	e := f.Recv.List[0].Type
	if star, ok := e.(*ast.StarExpr); ok {
		e = star.X
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// fuzzed are the names that the fuzz targets mention and, again and again, the functions of those files that they call.
func (s *source) fuzzed(files ...map[string]*ast.FuncDecl) map[string]bool {
	names, todo := map[string]bool{}, []string{}
	for name := range s.bodies {
		if strings.HasPrefix(name, "Fuzz") {
			todo = append(todo, name)
		}
	}
	for len(todo) > 0 {
		for _, in := range files {
			if in[todo[0]] == nil {
				continue
			}
			ast.Inspect(in[todo[0]], func(n ast.Node) bool {
				id, ok := n.(*ast.Ident)
				if ok && !names[id.Name] && !strings.HasPrefix(id.Name, "Test") {
					names[id.Name] = true
					todo = append(todo, id.Name)
				}
				return true
			})
		}
		todo = todo[1:]
	}
	return names
}
