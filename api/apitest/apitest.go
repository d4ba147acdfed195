// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package apitest checks what holds for every kind of the API: a document is read strictly and says the same when it is written
// again, a copy shares nothing with its original, the scheme knows object and list.
//
// Inputs are documents and objects, outputs the objects and failures of the test. It is imported by tests only, and may import
// apimachinery.
package apitest

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Read reads a document strictly: a field that T does not have, or that stands there twice, ends the test.
func Read[T any](t testing.TB, file string) *T {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return document[T](t, file, text)
}

// Document reads a document's text as Read does a file.
func Document[T any](t testing.TB, text string) *T {
	t.Helper()
	return document[T](t, "document", []byte(text))
}

func document[T any](t testing.TB, name string, text []byte) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict(text, out); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return out
}

// Same reads a document and checks that the object, written again, says the same in these parts; without any, in all. Numbers and
// amounts must stand there in their shortest form.
func Same[T any](t testing.TB, file string, parts ...string) *T {
	t.Helper()
	out := Read[T](t, file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	back, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	var want, got map[string]any
	if err := yaml.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(back, &got); err != nil {
		t.Fatal(err)
	}
	if len(parts) == 0 {
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s, written again: %s", file, d)
		}
	}
	for _, part := range parts {
		if d := cmp.Diff(want[part], got[part]); d != "" {
			t.Errorf("%s, %s written again: %s", file, part, d)
		}
	}
	return out
}

// Whole is Same for a document that uses every field of the kind, and checks that it does and that a copy of the object shares
// nothing with it.
func Whole[T any, P interface {
	*T
	runtime.Object
}](t testing.TB, file string) *T {
	t.Helper()
	out := Same[T](t, file)
	used := map[string]bool{}
	fields(reflect.ValueOf(out).Elem(), "", used)
	for path, is := range used {
		if !is {
			t.Errorf("%s does not use %s", file, path)
		}
	}
	Copied(t, P(out))
	return out
}

// Copied checks that a deep copy is equal and shares nothing.
func Copied(t testing.TB, o runtime.Object) {
	t.Helper()
	c := o.DeepCopyObject()
	if d := cmp.Diff(o, c); d != "" {
		t.Errorf("the copy differs: %s", d)
	}
	mine, its := map[place]string{}, map[place]string{}
	places(reflect.ValueOf(o), "", mine)
	places(reflect.ValueOf(c), "", its)
	if len(mine) <= 1 { // the object itself
		t.Error("the object holds nothing that could be shared: the test shows nothing")
	}
	for p, path := range its {
		if _, shared := mine[p]; shared {
			t.Errorf("the copy shares %s with the original", path)
		}
	}
}

// Scheme checks that the scheme knows these kinds and their lists, and no other of ours.
func Scheme(t testing.TB, add func(*runtime.Scheme) error, version schema.GroupVersion, kinds ...string) {
	t.Helper()
	s := runtime.NewScheme()
	if err := add(s); err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		for _, k := range []string{kind, kind + "List"} {
			if _, err := s.New(version.WithKind(k)); err != nil {
				t.Error(err)
			}
		}
	}
	for kind, of := range s.KnownTypes(version) {
		named := strings.TrimSuffix(kind, "List")
		if strings.HasPrefix(of.PkgPath(), module) && !slices.Contains(kinds, named) {
			t.Errorf("the scheme knows %s, which the test does not", kind)
		}
	}
}

const module = "github.com/koord-rt/koord-rt/"

// fields notes for each field of our own types whether any value of it is not zero.
func fields(v reflect.Value, path string, used map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fields(v.Elem(), path, used)
		}
	case reflect.Slice:
		for i := range v.Len() {
			fields(v.Index(i), path, used)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			fields(it.Value(), path, used)
		}
	case reflect.Struct:
		if !strings.HasPrefix(v.Type().PkgPath(), module) {
			return
		}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			// A status without fields is always zero.
			if f.Type.Kind() == reflect.Struct && f.Type.NumField() == 0 {
				continue
			}
			p := path + "." + f.Name
			used[p] = used[p] || !v.Field(i).IsZero()
			fields(v.Field(i), p, used)
		}
	}
}

// place is memory that two values could share. The type tells a struct from its first field.
type place struct {
	at uintptr
	of reflect.Type
}

// places notes what a value points to.
func places(v reflect.Value, path string, seen map[place]string) {
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			places(v.Elem(), path, seen)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			if v.Type().Elem().Size() > 0 {
				seen[place{v.Pointer(), v.Type()}] = path
			}
			places(v.Elem(), path, seen)
		}
	case reflect.Map:
		if !v.IsNil() {
			seen[place{v.Pointer(), v.Type()}] = path
		}
		for it := v.MapRange(); it.Next(); {
			places(it.Value(), path+"["+it.Key().String()+"]", seen)
		}
	case reflect.Slice:
		if v.Cap() > 0 && v.Type().Elem().Size() > 0 {
			seen[place{v.Pointer(), v.Type()}] = path
		}
		for i := range v.Len() {
			places(v.Index(i), path+"[]", seen)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return // its zone is shared by all, and never written
		}
		for i := range v.NumField() {
			places(v.Field(i), path+"."+v.Type().Field(i).Name, seen)
		}
	}
}
