// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"go/ast"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// collectorLine is one of the table of koordlet's collectors, collectorMade what makes one.
var (
	collectorLine = regexp.MustCompile(`(?m)^\t\{(?:"\w+"|\w+), \w+, (new\w+)\},`)
	collectorMade = regexp.MustCompile(`(?m)^func (new\w+)\(\w*\s*\*machine\) \(`)
)

// TestACollectorIsAFileAndALine: each line of the table is made in a file that makes no other, and each file that makes one has its line.
func TestACollectorIsAFileAndALine(t *testing.T) {
	t.Parallel()
	const dir = "../../koordlet/internal/collect"
	files := sources(t, dir)
	lines := map[string]int{}
	for _, m := range collectorLine.FindAllStringSubmatch(files[filepath.Join(dir, "collector.go")], -1) {
		lines[m[1]]++
	}
	if len(lines) < 15 {
		t.Fatalf("only %d collectors found: the search is wrong", len(lines))
	}
	made := map[string]bool{}
	for path, src := range files {
		here := collectorMade.FindAllStringSubmatch(src, -1)
		if len(here) > 1 {
			t.Errorf("%s makes %d collectors: each has a file of its own", path, len(here))
		}
		for _, m := range here {
			made[m[1]] = true
			if lines[m[1]] != 1 {
				t.Errorf("%s: %s has %d lines in the table of collector.go, want one", path, m[1], lines[m[1]])
			}
		}
	}
	for name := range lines {
		if !made[name] {
			t.Errorf("no file of %s makes %s of the table", dir, name)
		}
	}
}

// loopMade is the step of a loop, as policy has it.
var loopMade = regexp.MustCompile(`(?m)^func Step\(s State, in Input\) \(State, Output\)`)

// TestALoopIsAFileAndALine: koordlet calls the step of each loop on one line, and puts together what the loop looks at in one file, which does that for no
// other. That is not all that a loop takes (281c540 added one): its fields in State and in Tick or Outcome stand in decide.go, what is told of it in
// told.go of setup, and events that it has kept in audit.go of talk. CONTRIBUTING.md names them; nothing here counts them.
func TestALoopIsAFileAndALine(t *testing.T) {
	t.Parallel()
	decide := sources(t, "../../koordlet/internal/decide")
	of := map[string]string{} // by file, the loop
	n := 0
	rooms, err := filepath.Glob("../../policy/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range rooms {
		loop, is := filepath.Base(room), false
		for _, src := range sources(t, room) {
			is = is || loopMade.MatchString(src)
		}
		if !is {
			continue
		}
		n++
		calls, files := 0, []string(nil)
		for path, src := range decide {
			calls += strings.Count(src, " "+loop+".Step(")
			if strings.Contains(src, loop+".Input{") {
				files = append(files, path)
			}
		}
		if calls != 1 || len(files) != 1 {
			t.Errorf("loop %s: called on %d lines of koordlet/internal/decide, its input made in %v; want one of each", loop, calls, files)
			continue
		}
		if other, taken := of[files[0]]; taken {
			t.Errorf("%s makes the inputs of %s and %s: each loop has a file of its own", files[0], other, loop)
		}
		of[files[0]] = loop
	}
	if n < 8 {
		t.Errorf("only %d loops found: the search is wrong", n)
	}
}

// sources are the Go files of a folder but its tests.
func sources(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[path] = string(src)
	}
	return out
}

// controllerMade is what works in its own time.
var controllerMade = regexp.MustCompile(`(?m)^func \(\w+ \*(\w+)(?:\[\w+\])?\) Run\(ctx context\.Context\) error`)

// TestAControllerIsAFileAndALine: whatever of koordlet's rooms works in its own time has a file in which nobody else does, and koordlet starts it on one
// line.
func TestAControllerIsAFileAndALine(t *testing.T) {
	t.Parallel()
	const rooms = "../../koordlet/internal"
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedImports | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo, Dir: rooms,
	}, "./setup")
	if err != nil || len(loaded) != 1 || len(loaded[0].Errors) > 0 {
		t.Fatalf("load koordlet's setup: %v, %v", err, loaded)
	}
	started := map[string]map[string]int{} // by "room.Type", by its type arguments
	for _, file := range loaded[0].Syntax {
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Run" || loaded[0].TypesInfo.Selections[sel] == nil {
				return true
			}
			of := loaded[0].TypesInfo.Selections[sel].Recv()
			if p, pointer := of.(*types.Pointer); pointer {
				of = p.Elem()
			}
			if named, ok := of.(*types.Named); ok && named.Obj().Pkg() != nil {
				name := named.Obj().Pkg().Name() + "." + named.Obj().Name()
				if started[name] == nil {
					started[name] = map[string]int{}
				}
				started[name][named.String()]++
			}
			return true
		})
	}
	dirs, err := filepath.Glob(rooms + "/*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, dir := range dirs {
		room := filepath.Base(dir)
		if room == "setup" {
			continue
		}
		for path, src := range sources(t, dir) {
			made := controllerMade.FindAllStringSubmatch(src, -1)
			if len(made) > 1 {
				t.Errorf("%s makes %d controllers: each has a file of its own", path, len(made))
			}
			for _, m := range made {
				n++
				lines := started[room+"."+m[1]]
				if len(lines) == 0 {
					t.Errorf("%s: nobody starts %s", path, m[1])
				}
				for which, count := range lines {
					if count != 1 {
						t.Errorf("%s: %s is started on %d lines of koordlet's setup, want one", path, which, count)
					}
				}
			}
		}
	}
	if n < 12 {
		t.Errorf("only %d controllers found: the search is wrong", n)
	}
}
