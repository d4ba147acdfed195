// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ownership

import (
	"maps"
	"slices"
)

// Rule is one of the API server's over several fields. An object that breaks it is refused as a whole, whoever has written which field.
type Rule struct {
	// Fields are those of the rule that we may want.
	Fields []Path
	// Broken says how leaves of a spec break it, "" where they do not.
	Broken func(map[Path]any) string
}

// Yielded is a field that is not as we want it, because it would break a rule with what others have written.
type Yielded struct {
	Path Path
	// Stays is whether it stays as we had applied it before; else it is left out.
	Stays bool
	// Why is how the rule would be broken, Owners the fields of it that others have written, sorted; "path (owner)".
	Why    string
	Owners []string
}

// Yield is what is wanted without what would break a rule beside what others have written. Ours of such a rule is left out; where that breaks the
// rule too, by a default, what we had applied of it stays. alias is that of [Decide], which is to get the result.
func Yield(wanted, stored Tree, owners Owners, alias func(Path) []Path, rules []Rule) (Tree, []Yielded) {
	theirs := foreign(owners, alias)
	var out []Yielded
	now := standing(wanted, stored, owners, theirs)
	for _, r := range rules {
		why := r.Broken(now)
		if why == "" {
			continue
		}
		ours := func(p Path) bool { return slices.Contains(r.Fields, p) && !touchesAny(p, theirs) }
		less := without("", wanted, ours)
		then := standing(less, stored, owners, theirs)
		if r.Broken(then) != "" {
			for p := range owners.Mine {
				if ours(p) {
					less = With(less, stored, p)
				}
			}
			then = standing(less, stored, owners, theirs)
		}
		before, after := Leaves(wanted), Leaves(less)
		for _, p := range slices.Sorted(slices.Values(r.Fields)) {
			is, stays := after[p]
			if was, asked := before[p]; ours(p) && (stays != asked || !equal(was, is)) {
				out = append(out, Yielded{Path: p, Stays: stays, Why: why, Owners: ownersOf(r, owners, alias)})
			}
		}
		wanted, now = less, then
	}
	return wanted, out
}

// standing are the leaves of the object once what is wanted is applied.
func standing(wanted, stored Tree, owners Owners, theirs map[Path]string) map[Path]any {
	out := Leaves(stored)
	maps.DeleteFunc(out, func(p Path, _ any) bool { return owners.Mine[p] && !touchesAny(p, owners.Others) })
	for p, v := range Leaves(wanted) {
		if !touchesAny(p, theirs) {
			out[p] = v
		}
	}
	return out
}

// ownersOf are the fields of a rule that others have written, as they have spelt them.
func ownersOf(r Rule, owners Owners, alias func(Path) []Path) []string {
	var out []string
	for p, who := range owners.Others {
		names := []Path{p}
		if alias != nil {
			names = append(names, alias(p)...)
		}
		if slices.ContainsFunc(names, func(n Path) bool { return slices.ContainsFunc(r.Fields, func(f Path) bool { return touches(n, f) }) }) {
			out = append(out, p+" ("+who+")")
		}
	}
	slices.Sort(out)
	return out
}
