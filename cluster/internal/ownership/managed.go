// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ownership

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Absent is a resource version that no object has: an apply with it makes an object, and is refused with a conflict where somebody else has just
// made one that a cache has not seen yet.
const Absent = "1"

// Another reports whether an apply or a patch that gives a UID was refused because another object has taken the name since. An API server says so
// by the field that cannot change; where there is no object it says conflict.
func Another(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsInvalid(err) && errors.As(err, &status) && status.Status().Details != nil &&
		slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// Owners are the fields of an object's spec by who has written them.
type Owners struct {
	// Mine are those that we applied.
	Mine map[Path]bool
	// Others are everybody else's, by the name of one who wrote them.
	Others map[Path]string
	// MyLabels and MyAnnotations are names of those that we applied.
	MyLabels, MyAnnotations map[string]bool
}

// OwnersOf reads managedFields for the manager me. Entries of subresources are about the status.
func OwnersOf(entries []metav1.ManagedFieldsEntry, me string) (Owners, error) {
	out := Owners{Mine: map[Path]bool{}, Others: map[Path]string{}, MyLabels: map[string]bool{}, MyAnnotations: map[string]bool{}}
	for _, e := range entries {
		if e.Subresource != "" || e.FieldsV1 == nil {
			continue
		}
		var fields Tree
		if err := json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields); err != nil {
			return out, fmt.Errorf("read the managed fields of %.60q: %w", e.Manager, err)
		}
		spec, _ := fields["f:spec"].(Tree)
		mine := e.Manager == me && e.Operation == metav1.ManagedFieldsOperationApply
		for p := range owned("", spec) {
			if mine {
				out.Mine[p] = true
			} else {
				out.Others[p] = e.Manager
			}
		}
		if mine {
			meta, _ := fields["f:metadata"].(Tree)
			named(out.MyLabels, meta["f:labels"])
			named(out.MyAnnotations, meta["f:annotations"])
		}
	}
	return out, nil
}

// named notes the keys of labels or annotations.
func named(to map[string]bool, fields any) {
	below, _ := fields.(Tree)
	for name := range below {
		if name, is := strings.CutPrefix(name, "f:"); is {
			to[name] = true
		}
	}
}

// owned are the leaves of a set of fields: names without names below. What stands for elements of a list ("k:", "v:", "i:") makes
// the list the leaf.
func owned(at Path, fields Tree) map[Path]bool {
	out := map[Path]bool{}
	for name, v := range fields {
		name, is := strings.CutPrefix(name, "f:")
		if !is {
			continue
		}
		p := step(at, name)
		below, _ := v.(Tree)
		deeper := owned(p, below)
		if len(deeper) == 0 {
			deeper = map[Path]bool{p: true}
		}
		maps.Copy(out, deeper)
	}
	return out
}

// Plan is what to do with an object's spec.
type Plan struct {
	// Apply is what we want of what nobody else has written.
	Apply Tree
	// Needed reports whether applying it would change anything.
	Needed bool
	// Overridden are the fields that we want otherwise and leave to their owners, sorted; "path (owner)".
	Overridden []string
}

// Decide compares what is wanted with the spec that is stored; stored is nil where there is no object. alias gives other names of a
// field that somebody wrote, such as its canonical spelling; it may be nil.
func Decide(wanted, stored Tree, owners Owners, alias func(Path) []Path) Plan {
	theirs := foreign(owners, alias)
	var plan Plan
	have := Leaves(stored)
	want := Leaves(wanted)
	plan.Apply = without("", wanted, func(p Path) bool {
		for f, who := range theirs {
			if touches(p, f) {
				if v, is := have[p]; !is || !equal(v, want[p]) {
					plan.Overridden = append(plan.Overridden, p+" ("+who+")")
				}
				return true
			}
		}
		return false
	})
	slices.Sort(plan.Overridden)
	left := Leaves(plan.Apply)
	plan.Needed = stored == nil || len(left) != len(owners.Mine)
	for p, v := range left {
		now, is := have[p]
		plan.Needed = plan.Needed || !owners.Mine[p] || !is || !equal(now, v)
	}
	return plan
}

// foreign are the fields that others have written, by every name of theirs.
func foreign(owners Owners, alias func(Path) []Path) map[Path]string {
	out := maps.Clone(owners.Others)
	if alias == nil {
		return out
	}
	for p, who := range owners.Others {
		for _, other := range alias(p) {
			out[other] = who
		}
	}
	return out
}

// equal compares two values of trees.
func equal(a, b any) bool {
	switch a := a.(type) {
	case Tree:
		b, is := b.(Tree)
		return is && maps.EqualFunc(a, b, equal)
	case []any:
		b, is := b.([]any)
		return is && slices.EqualFunc(a, b, equal)
	}
	return a == b
}
