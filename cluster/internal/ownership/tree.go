// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ownership

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// Tree is a JSON object: map[string]any, []any, string, bool, int64, float64 (never a whole number within int64) or nil.
type Tree = map[string]any

// TreeOf is v as JSON has it, without objects that hold nothing.
func TreeOf(v any) (Tree, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write as JSON: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	out := Tree{}
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("read as a JSON object: %w", err)
	}
	prune(out)
	return out, nil
}

// prune drops empty objects and gives equal numbers equal types, as the API server does: 1.0 is 1.
func prune(t Tree) {
	for name, v := range t {
		t[name] = plain(v)
		if below, is := t[name].(Tree); is && len(below) == 0 {
			delete(t, name)
		}
	}
}

// plain is a value without json.Number.
func plain(v any) any {
	switch v := v.(type) {
	case Tree:
		prune(v)
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		if n := int64(f); float64(n) == f && f > -1<<53 && f < 1<<53 {
			return n
		}
		return f
	}
	return v
}

// Path names a field as RFC 6901 does: "/cpuBurstStrategy/policy".
type Path = string

// step appends a name to a path. Hardly a name has what must be written otherwise, and to prepare for it costs more than all the rest.
func step(p Path, name string) Path {
	if strings.ContainsAny(name, "~/") {
		name = strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	}
	return p + "/" + name
}

// Leaves are the values of a tree by their paths.
func Leaves(t Tree) map[Path]any {
	out := map[Path]any{}
	leaves("", t, out)
	return out
}

func leaves(at Path, t Tree, out map[Path]any) {
	for name, v := range t {
		if below, is := v.(Tree); is {
			leaves(step(at, name), below, out)
			continue
		}
		out[step(at, name)] = v
	}
}

// without is a copy of t without the leaves that drop names, and without objects that hold nothing then.
func without(at Path, t Tree, drop func(Path) bool) Tree {
	out := Tree{}
	for name, v := range t {
		p := step(at, name)
		below, is := v.(Tree)
		switch {
		case is:
			if rest := without(p, below, drop); len(rest) > 0 {
				out[name] = rest
			}
		case !drop(p):
			out[name] = v
		}
	}
	return out
}

// touches reports whether one of the two fields is the other or part of it.
func touches(a, b Path) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// touchesAny reports whether a field touches one of those.
func touchesAny(p Path, of map[Path]string) bool {
	for f := range of {
		if touches(p, f) {
			return true
		}
	}
	return false
}

// Without is a copy of t without the leaves that drop names, and without objects that hold nothing then.
func Without(t Tree, drop func(Path) bool) Tree { return without("", t, drop) }

// With is a copy of t that has the field at p as from has it; t where from has none.
func With(t, from Tree, p Path) Tree {
	return with(t, from, strings.Split(strings.TrimPrefix(p, "/"), "/"))
}

func with(t, from Tree, steps []string) Tree {
	name := steps[0]
	if strings.Contains(name, "~") {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
	}
	value, is := from[name]
	if !is {
		return t
	}
	out := maps.Clone(t)
	if out == nil {
		out = Tree{}
	}
	if len(steps) == 1 {
		out[name] = value
		return out
	}
	below, _ := value.(Tree)
	mine, _ := out[name].(Tree)
	if deeper := with(mine, below, steps[1:]); len(deeper) > 0 {
		out[name] = deeper
	}
	return out
}
