// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/policy/evict"
)

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	// formula is a block that is set off, with something that is computed or compared.
	formula = regexp.MustCompile(`(?m)^    .*[=<>≤≥×−→]`)
)

// stepOf is the loop that each room of policy decides for, by the name that koordlet tells it by.
var stepOf = map[string]string{
	"suppress": "cpu-suppress", "burst": "cpu-burst", "memqos": "memory", "interference": "interference", "sysctl": "kernel-parameters",
	"iocost": "io-cost", "netqos": "network", "oomscore": "memory", "evict": evict.BEMemoryEvict.String(),
}

// troubles are told among the loops, and decide nothing.
var troubles = map[string]string{
	"audit":         "events are not kept",
	"give-back":     "what is no longer wanted and still stands",
	"kubelet-cpus":  "the kubelet's checkpoint cannot be read",
	"keep-strategy": "the strategy cannot be kept for the next boot",
	"loops":         "nothing is decided, for the runtime has not told of its containers",
	"write":         "nothing is written, since the run directory cannot be used",
}

// toldLoops are the names by which koordlet tells of its loops: those of status.Loop, and of NodeSLO's status beside features and evictions.
func toldLoops(t *testing.T) []string {
	t.Helper()
	var out []string
	add := func(path string, names ast.Expr) {
		if lit, ok := names.(*ast.BasicLit); ok {
			name, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			out = append(out, name)
			return
		}
		call, _ := names.(*ast.CallExpr)
		if call == nil || !isOf(call.Fun, "Feature", "String") && !isOf(call.Fun, "f", "String") { // o.Feature, or f of all of them
			t.Errorf("%s: a loop whose name is neither a text nor of a feature of evictions: this test cannot say which", path)
			return
		}
		for f := range evict.NumFeatures {
			out = append(out, f.String())
		}
	}
	err := filepath.WalkDir(filepath.Join(root, "koordlet", "internal"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			made, key := lit.Type, "Name"
			if list, ok := made.(*ast.ArrayType); ok {
				for _, e := range lit.Elts {
					if one, ok := e.(*ast.CompositeLit); ok && one.Type == nil {
						one.Type = list.Elt // as if it stood there
					}
				}
			}
			if filepath.Base(path) == "loopstates.go" && isOf(made, "node", "FeatureState") {
				key = "Feature"
			} else if !isOf(made, "status", "Loop") {
				return true
			}
			for _, e := range lit.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok && isOf(kv.Key, "", key) {
					add(path, kv.Value)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || len(out) < 20 {
		t.Fatalf("only %d names of loops found: %v, %v", len(out), out, err)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// isOf reports whether an expression ends with of.name, or is name alone where of is empty.
func isOf(e ast.Expr, of, name string) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return of == "" && e.Name == name
	case *ast.SelectorExpr:
		if e.Sel.Name != name {
			return false
		}
		switch x := e.X.(type) {
		case *ast.Ident:
			return x.Name == of
		case *ast.SelectorExpr:
			return x.Sel.Name == of
		}
	}
	return false
}

// section is what stands below the heading of an anchor, with what is below its own headings; the whole page without an anchor.
func section(text, anchor string) string {
	if anchor == "" {
		return text
	}
	var b strings.Builder
	level := 0
	for line := range strings.Lines(text) {
		if hashes := len(line) - len(strings.TrimLeft(line, "#")); hashes > 0 {
			switch {
			case level == 0 && hasHeading(line, anchor):
				level = hashes
			case level > 0 && hashes <= level:
				return b.String()
			}
		}
		if level > 0 {
			b.WriteString(line)
		}
	}
	return b.String()
}

// mdTables are the tables of a text, each with its head, by rows of cells.
func mdTables(text string) (out [][][]string) {
	var rows [][]string
	for line := range strings.Lines(text + "\n\n") {
		if !strings.HasPrefix(line, "|") {
			if len(rows) > 2 {
				out = append(out, append(rows[:1:1], rows[2:]...))
			}
			rows = nil
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return out
}

// spans are the pieces of code in a text.
func spans(text string) (out []string) {
	for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

// Each loop that koordlet has is in the guide's table of loops, under the names by which koordlet tells of it, and its section has the formula, a table of
// knobs with their defaults, how to begin safely, where to look and how to switch it off. What the table says to switch it on by is a knob.
func TestGuideExplainsEachLoop(t *testing.T) {
	t.Parallel()
	pages, known := manuals(t), knownKnobs(t)
	guide := filepath.Join("docs", "user", "koordlet.md")
	tables := mdTables(section(pages[guide], "the-loops"))
	if len(tables) < 2 {
		t.Fatalf("%s has %d tables of loops", guide, len(tables))
	}
	named := map[string]bool{}
	for i, table := range tables[:2] { // what decides, and what is set at creation and kept true
		for _, row := range table[1:] {
			m := mdLink.FindStringSubmatch(row[0])
			if m == nil {
				t.Errorf("%s: %s leads to no section", guide, row[0])
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			page := guide
			if file != "" {
				page = filepath.Join("docs", "user", file)
			}
			text := section(pages[page], anchor)
			if i == 0 {
				for _, name := range spans(row[len(row)-1]) {
					named[name] = true
				}
				if !formula.MatchString(text) {
					t.Errorf("%s: %s: no formula", page, row[0])
				}
				for _, key := range spans(row[2]) {
					if key, _, _ = strings.Cut(key, ":"); len(known.find(nil, key)) == 0 {
						t.Errorf("%s: %s: %s is no knob", guide, row[0], key)
					}
				}
			}
			if !slices.ContainsFunc(mdTables(text), isKnobTable) {
				t.Errorf("%s: %s: no table of knobs with defaults", page, row[0])
			}
			for _, want := range []string{"**On by default:**", "**Safe start:**", "**Look", "**Off"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s: %s: no %s", page, row[0], want)
				}
			}
		}
	}
	told := toldLoops(t)
	for _, name := range told {
		if _, trouble := troubles[name]; trouble == named[name] {
			t.Errorf("loop %s: in the table of %s: %v, says what cannot be done only: %v", name, guide, named[name], trouble)
		} else if trouble && !strings.Contains(pages[guide], "`"+name+"`") {
			t.Errorf("loop %s, which tells of a trouble, is not on %s", name, guide)
		}
	}
	for name := range named {
		if !slices.Contains(told, name) {
			t.Errorf("%s: koordlet tells of no loop %s", guide, name)
		}
	}
	rooms, err := filepath.Glob(filepath.Join(root, "policy", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range rooms {
		src, err := parse(room)
		if err != nil || src.types["Input"] == nil || src.types["State"] == nil || src.types["Output"] == nil {
			continue // no loop
		}
		if of := stepOf[filepath.Base(room)]; !named[of] {
			t.Errorf("policy/%s decides for %q, which is no loop of the guide", filepath.Base(room), of)
		}
	}
}

// What the guide says to begin with is in the words of the strategy and the configuration.
func TestGuideBeginsWithKnobs(t *testing.T) {
	t.Parallel()
	known := knownKnobs(t)
	n := 0
	for path, text := range manuals(t) {
		if !isGuide(path) {
			continue
		}
		for paragraph := range strings.SplitSeq(text, "\n\n") {
			_, start, _ := strings.Cut(paragraph, "**Safe start:**")
			start, _, _ = strings.Cut(start, "**")
			for _, span := range spans(start) {
				var object map[string]any
				if strings.Contains(span, "/") || yaml.Unmarshal([]byte(span), &object) != nil {
					continue // an annotation or label, or one word
				}
				n++
				for _, key := range keysIn(object) {
					if len(known.find(nil, key)) == 0 {
						t.Errorf("%s: %s: nobody has the key %s", path, span, key)
					}
				}
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d settings were found", n)
	}
}

// keysIn are the keys of an object and of those within it.
func keysIn(object map[string]any) (out []string) {
	for key, value := range object {
		out = append(out, key)
		if within, ok := value.(map[string]any); ok {
			out = append(out, keysIn(within)...)
		}
	}
	return out
}

// isGuide: the pages of docs/user about koordlet.
func isGuide(path string) bool {
	return strings.HasPrefix(path, filepath.Join("docs", "user", "koordlet"))
}
