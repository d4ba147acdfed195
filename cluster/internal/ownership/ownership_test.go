// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ownership

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const me = "koord-manager"

// tree reads JSON text as it comes from a typed object.
func tree(t *testing.T, text string) Tree {
	t.Helper()
	if text == "" {
		return nil
	}
	out, err := TreeOf(json.RawMessage(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func managed(who string, op metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: who, Operation: op, FieldsV1: metav1.NewFieldsV1(fields)}
}

func TestTreeOf(t *testing.T) {
	t.Parallel()
	got := tree(t, `{"a": {"b": 1, "c": {}, "d": {"e": {}}}, "f": [], "g": 1.0, "h": 0.5, "i": 9007199254740993, "j": [{"k": 2.0}], "l": ""}`)
	want := Tree{"a": Tree{"b": int64(1)}, "f": []any{}, "g": int64(1), "h": 0.5, "i": int64(9007199254740993),
		"j": []any{Tree{"k": int64(2)}}, "l": ""}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("have %#v\nwant %#v", got, want)
	}
	if _, err := TreeOf([]int{1}); err == nil {
		t.Error("a list is no object")
	}
}

func TestOwnersOf(t *testing.T) {
	t.Parallel()
	status := managed("koordlet", metav1.ManagedFieldsOperationUpdate, `{"f:status": {"f:x": {}}, "f:spec": {"f:never": {}}}`)
	status.Subresource = "status"
	got, err := OwnersOf([]metav1.ManagedFieldsEntry{
		managed(me, metav1.ManagedFieldsOperationApply, `{"f:metadata": {"f:annotations": {".": {}, "f:koord-rt.dev/created-by": {}}, "f:labels": {"f:tree": {}}},
			"f:spec": {".": {}, "f:burst": {".": {}, "f:policy": {}}, "f:hosts": {}}}`),
		managed(me, metav1.ManagedFieldsOperationUpdate, `{"f:spec": {"f:byHand": {}}}`),
		managed("kubectl", metav1.ManagedFieldsOperationUpdate, `{"f:spec": {"f:list": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}}, "f:a/b": {}}}`),
		status, {Manager: "nothing"},
	}, me)
	want := Owners{
		Mine:          map[Path]bool{"/burst/policy": true, "/hosts": true},
		Others:        map[Path]string{"/byHand": me, "/list": "kubectl", "/a~1b": "kubectl"},
		MyLabels:      map[string]bool{"tree": true},
		MyAnnotations: map[string]bool{"koord-rt.dev/created-by": true},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\nhave %+v\nwant %+v", err, got, want)
	}
	if _, err := OwnersOf([]metav1.ManagedFieldsEntry{managed("x", metav1.ManagedFieldsOperationApply, `{`)}, me); err == nil {
		t.Error("fields that cannot be read are taken for none")
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	alias := func(p Path) []Path {
		if rest, is := strings.CutPrefix(p, "/seed/"); is {
			return []Path{"/burst/" + rest}
		}
		return nil
	}
	mine := func(paths ...Path) map[Path]bool {
		out := map[Path]bool{}
		for _, p := range paths {
			out[p] = true
		}
		return out
	}
	for name, c := range map[string]struct {
		wanted, stored string
		mine           map[Path]bool
		others         map[Path]string
		apply          string
		needed         bool
		overridden     []string
	}{
		"no object":            {wanted: `{"burst": {"policy": "auto"}}`, apply: `{"burst": {"policy": "auto"}}`, needed: true},
		"no object, no wishes": {wanted: `{}`, apply: `{}`, needed: true},
		"nothing to do": {wanted: `{"burst": {"policy": "auto"}}`, stored: `{"burst": {"policy": "auto"}}`, mine: mine("/burst/policy"),
			apply: `{"burst": {"policy": "auto"}}`},
		"nothing wanted, nothing there": {wanted: `{}`, stored: `{}`, apply: `{}`},
		"another value": {wanted: `{"burst": {"policy": "auto"}}`, stored: `{"burst": {"policy": "none"}}`, mine: mine("/burst/policy"),
			apply: `{"burst": {"policy": "auto"}}`, needed: true},
		"a field more": {wanted: `{"burst": {"policy": "auto", "percent": 1}}`, stored: `{"burst": {"policy": "auto"}}`, mine: mine("/burst/policy"),
			apply: `{"burst": {"policy": "auto", "percent": 1}}`, needed: true},
		"a field less: it is taken back": {wanted: `{"burst": {"policy": "auto"}}`, stored: `{"burst": {"policy": "auto", "percent": 1}}`,
			mine: mine("/burst/policy", "/burst/percent"), apply: `{"burst": {"policy": "auto"}}`, needed: true},
		"nothing wanted any more": {wanted: `{}`, stored: `{"burst": {"policy": "auto"}}`, mine: mine("/burst/policy"), apply: `{}`, needed: true},
		"the value is there, but by nobody": {wanted: `{"burst": {"policy": "auto"}}`, stored: `{"burst": {"policy": "auto"}}`,
			apply: `{"burst": {"policy": "auto"}}`, needed: true},
		"a field of somebody else's": {wanted: `{"burst": {"policy": "auto", "percent": 1}}`, stored: `{"burst": {"policy": "none", "percent": 1}}`,
			mine: mine("/burst/percent"), others: map[Path]string{"/burst/policy": "kubectl"},
			apply: `{"burst": {"percent": 1}}`, overridden: []string{"/burst/policy (kubectl)"}},
		"somebody took one of ours": {wanted: `{"burst": {"policy": "auto", "percent": 1}}`, stored: `{"burst": {"policy": "auto", "percent": 1}}`,
			mine: mine("/burst/percent", "/burst/policy"), others: map[Path]string{"/burst/policy": "kubectl"},
			apply: `{"burst": {"percent": 1}}`, needed: true},
		"somebody gave it back": {wanted: `{"burst": {"policy": "auto", "percent": 1}}`, stored: `{"burst": {"percent": 1}}`,
			mine: mine("/burst/percent"), apply: `{"burst": {"policy": "auto", "percent": 1}}`, needed: true},
		"what others wrote beside us stays": {wanted: `{"burst": {"policy": "auto"}}`, stored: `{"burst": {"policy": "auto"}, "more": {"x": 1}}`,
			mine: mine("/burst/policy"), others: map[Path]string{"/more/x": "kubectl"}, apply: `{"burst": {"policy": "auto"}}`},
		"another spelling": {wanted: `{"burst": {"policy": "auto", "percent": 1}}`, stored: `{"burst": {"policy": "auto", "percent": 1}, "seed": {"policy": "none"}}`,
			mine: mine("/burst/policy", "/burst/percent"), others: map[Path]string{"/seed/policy": "kubectl"},
			apply: `{"burst": {"percent": 1}}`, needed: true},
		"a whole group of somebody else's": {wanted: `{"burst": {"policy": "auto"}, "x": 1}`, stored: `{"x": 1}`,
			mine: mine("/x"), others: map[Path]string{"/burst": "kubectl"}, apply: `{"x": 1}`, overridden: []string{"/burst/policy (kubectl)"}},
		"part of a list": {wanted: `{"list": [1, 2]}`, stored: `{"list": [1]}`, others: map[Path]string{"/list": "kubectl"}, apply: `{}`,
			overridden: []string{"/list (kubectl)"}},
		"a list that differs within": {wanted: `{"list": [{"a": 1}]}`, stored: `{"list": [{"a": 2}]}`, mine: mine("/list"), apply: `{"list": [{"a": 1}]}`, needed: true},
		"a list that is the same":    {wanted: `{"list": [{"a": 1}]}`, stored: `{"list": [{"a": 1.0}]}`, mine: mine("/list"), apply: `{"list": [{"a": 1}]}`},
		"a name that begins alike":   {wanted: `{"ab": 1}`, stored: `{"ab": 1, "a": 2}`, mine: mine("/ab"), others: map[Path]string{"/a": "kubectl"}, apply: `{"ab": 1}`},
	} {
		got := Decide(tree(t, c.wanted), tree(t, c.stored), Owners{Mine: c.mine, Others: c.others}, alias)
		if !reflect.DeepEqual(got.Apply, tree(t, c.apply)) || got.Needed != c.needed || !reflect.DeepEqual(got.Overridden, c.overridden) {
			t.Errorf("%s: have %+v", name, got)
		}
	}
}

func TestWith(t *testing.T) {
	t.Parallel()
	to, from := tree(t, `{"a": {"x": 1}, "b": 2}`), tree(t, `{"a": {"y": 3}, "c": {"d/e": {"f": 4}}}`)
	for p, want := range map[Path]string{
		"/a/y": `{"a": {"x": 1, "y": 3}, "b": 2}`, "/c/d~1e/f": `{"a": {"x": 1}, "b": 2, "c": {"d/e": {"f": 4}}}`,
		"/b": `{"a": {"x": 1}, "b": 2}`, "/a/z": `{"a": {"x": 1}, "b": 2}`, "/none/z": `{"a": {"x": 1}, "b": 2}`,
	} {
		if got := With(to, from, p); !reflect.DeepEqual(got, tree(t, want)) {
			t.Errorf("%s: have %v, want %s", p, got, want)
		}
	}
	if !reflect.DeepEqual(to, tree(t, `{"a": {"x": 1}, "b": 2}`)) {
		t.Error("what it began with was changed")
	}
}
