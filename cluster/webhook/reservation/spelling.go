// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package reservation

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	sigsjson "sigs.k8s.io/json"
)

// mostStrange is how many unknown fields sigs.k8s.io/json tells of at most.
const mostStrange = 100

// spelling says which fields of an object's spec nobody knows here. The API server says it of all but the templates, which the definitions leave
// open, as pods have more fields with each Kubernetes. So a field is refused only where it is one letter away from one of those that may stand
// there: that is a misspelling. Of another one there is a warning: a newer client may mean it, and a newer scheduler go by it. What was so before
// is not refused again.
//
// Example: template.spec.conatiners is refused, with the word containers; template.namespace, which Koordinator's own samples have, is not.
func spelling[Spec any](req *admission.Request, what seen) (refused, warned []string) {
	var before []string
	switch what {
	case changed:
		before = strange[Spec](req.OldObject.Raw)
	case unreadable:
		return nil, nil
	}
	for _, path := range strange[Spec](req.Object.Raw) {
		known := meant(reflect.TypeFor[Spec](), path)
		switch text := fmt.Sprintf("spec.%.200s: unknown field", path); {
		case known == "":
			warned = append(warned, text+", which is kept: see whether it is spelt right")
		case slices.Contains(before, path) || len(before) >= mostStrange:
			warned = append(warned, text+": write "+known)
		default:
			refused = append(refused, text+": write "+known)
		}
	}
	return refused, warned
}

// strange are the paths below the spec of an object that was decoded, of fields that its type does not have.
func strange[Spec any](raw []byte) (paths []string) {
	var o struct {
		Spec json.RawMessage `json:"spec"`
	}
	if json.Unmarshal(raw, &o) != nil || o.Spec == nil {
		return nil
	}
	found, err := sigsjson.UnmarshalStrict(o.Spec, new(Spec), sigsjson.DisallowUnknownFields)
	if err != nil {
		return nil // it was decoded already, by names in any case
	}
	for _, f := range found {
		if field := sigsjson.FieldError(nil); errors.As(f, &field) {
			paths = append(paths, field.FieldPath())
		}
	}
	return paths
}

// meant is the field that the last one of a path below a type is a misspelling of, "" for none.
func meant(t reflect.Type, path string) string {
	steps := strings.Split(path, ".")
	last := len(steps) - 1
	for _, step := range steps[:last] {
		name, _, _ := strings.Cut(step, "[")
		if t = fields(t)[name]; t == nil {
			return ""
		}
	}
	for _, known := range slices.Sorted(maps.Keys(fields(t))) {
		if misspells(steps[last], known) {
			return known
		}
	}
	return ""
}

// fields are those of the struct that a type is or holds, by the names they have in JSON.
func fields(t reflect.Type) map[string]reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	out := map[string]reflect.Type{}
	for f := range t.Fields() {
		switch name, _, _ := strings.Cut(f.Tag.Get("json"), ","); {
		case name == "" && f.Anonymous:
			maps.Copy(out, fields(f.Type))
		case name != "" && name != "-":
			out[name] = f.Type
		}
	}
	return out
}

// misspells reports whether a name is another one with one letter more, less or another, two of them swapped, or in other case. Names below four
// letters are too short to tell, as of volumes nfs and what comes next, and one that only goes on where the other ends is no misspelling:
// Kubernetes calls a list hostIPs beside the single hostIP.
func misspells(name, of string) bool {
	if strings.EqualFold(name, of) {
		return true
	}
	name, of = strings.ToLower(name), strings.ToLower(of)
	same := 0
	for same < min(len(name), len(of)) && name[same] == of[same] {
		same++
	}
	if len(of) < 4 || same == len(name) || same == len(of) {
		return false
	}
	a, b := name[same:], of[same:]
	swapped := len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] && a[2:] == b[2:]
	return swapped || a[1:] == b[1:] || a[1:] == b || a == b[1:]
}
