// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package crds_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// field is one line of testdata/upstream-fields.txt.
type field struct {
	definition, version, path, kind string
	required                        bool
}

func upstreamFields(t *testing.T) []field {
	t.Helper()
	text, err := os.ReadFile("testdata/upstream-fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []field
	for line := range strings.Lines(string(text)) {
		if w := strings.Fields(line); len(w) >= 4 && w[0] != "#" {
			out = append(out, field{w[0], w[1], w[2], w[3], len(w) == 5 && w[4] == "required"})
		}
	}
	if len(out) < 700 {
		t.Fatalf("%d fields of upstream", len(out))
	}
	return out
}

// takes says what kinds of schema hold a value of one of upstream's types.
func takes(kind string) []string {
	switch {
	case strings.HasPrefix(kind, "[]"):
		return []string{"array"}
	case strings.HasPrefix(kind, "int"):
		return []string{"integer", "int-or-string"}
	case kind == "string" || kind == "time":
		return []string{"string", "int-or-string"}
	case kind == "boolean":
		return []string{"boolean"}
	case kind == "IntOrString":
		return []string{"int-or-string"}
	}
	return []string{"object"}
}

// stricter are fields that we ask for and upstream does not: without them the node could do nothing with the entry.
var stricter = []string{".hostApplications[].name", ".blocks[].name", ".blocks[].type"}

// TestUpstreamsFields: what upstream's definitions take, ours take.
func TestUpstreamsFields(t *testing.T) {
	t.Parallel()
	all := current(t)
	known, required := map[string]bool{}, map[string]bool{}
	for _, f := range upstreamFields(t) {
		d := all[f.definition]
		if d == nil {
			t.Errorf("no definition %s", f.definition)
			continue
		}
		i := slices.IndexFunc(d.Spec.Versions, func(v version) bool { return v.Name == f.version })
		if i < 0 {
			t.Errorf("%s has no version %s", f.definition, f.version)
			continue
		}
		path := strings.TrimSuffix(strings.TrimSuffix(f.path, "[]"), "{}")
		id := f.definition + " " + f.version + " "
		known[id], known[id+path], required[id+path] = true, true, f.required
		for at := path; strings.Contains(at, "."); {
			at = at[:strings.LastIndex(at, ".")]
			known[id+at] = true
		}
		s := d.Spec.Versions[i].Schema.Root.at(path)
		switch {
		case s == nil:
			t.Errorf("%s%s is missing", id, path)
		case !slices.Contains(takes(f.kind), s.kind()):
			t.Errorf("%s%s is %s, upstream's %s", id, path, s.kind(), f.kind)
		case strings.HasPrefix(f.kind, "map[") && s.Values == nil:
			t.Errorf("%s%s takes no keys, upstream's is %s", id, path, f.kind)
		case f.kind == "time" && s.Format != "date-time":
			t.Errorf("%s%s is no time", id, path)
		}
	}
	for name, d := range all {
		for _, v := range d.Spec.Versions {
			id := name + " " + v.Name + " "
			v.Schema.Root.walk("", func(path string, s *schema) {
				for _, r := range s.Required {
					at := strings.TrimPrefix(path+"."+r, ".")
					if known[id+path] && !required[id+at] && !slices.ContainsFunc(stricter, func(e string) bool { return strings.HasSuffix(at, e) }) {
						t.Errorf("%s%s is required, and not upstream", id, at)
					}
				}
			})
		}
	}
}
