// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apitest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	said []string
}

func (r *recorder) Helper()                   {}
func (r *recorder) Error(a ...any)            { r.said = append(r.said, fmt.Sprint(a...)) }
func (r *recorder) Errorf(f string, a ...any) { r.said = append(r.said, fmt.Sprintf(f, a...)) }
func (r *recorder) Fatal(a ...any)            { r.Error(a...); runtime.Goexit() }
func (r *recorder) Fatalf(f string, a ...any) { r.Errorf(f, a...); runtime.Goexit() }

// record is what a check says.
func record(f func(t testing.TB)) (said string) {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return strings.Join(r.said, "\n")
}

type part struct {
	Names  []string `json:"names,omitempty"`
	Number *int64   `json:"number,omitempty"`
}

// Object is a kind with a deep copy.
type Object struct {
	metav1.TypeMeta `json:",inline"`
	Parts           []part            `json:"parts,omitempty"`
	Words           map[string]string `json:"words,omitempty"`
	Lost            string            `json:"-"`
}

func (o *Object) DeepCopyObject() apiruntime.Object {
	c := *o
	c.Parts = nil
	for _, p := range o.Parts {
		q := part{Names: append([]string(nil), p.Names...)}
		if p.Number != nil {
			n := *p.Number
			q.Number = &n
		}
		c.Parts = append(c.Parts, q)
	}
	c.Words = maps.Clone(o.Words)
	return &c
}

type objectList struct{ Object }

// shallow copies as an assignment does.
type shallow struct{ Object }

func (o *shallow) DeepCopyObject() apiruntime.Object {
	c := *o
	return &c
}

// forgetful copies nothing.
type forgetful struct{ Object }

func (o *forgetful) DeepCopyObject() apiruntime.Object { return &forgetful{} }

func number(n int64) *int64 { return &n }

func TestFailsWhereItShould(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	version := schema.GroupVersion{Group: "g", Version: "v1"}
	know := func(objects ...string) func(*apiruntime.Scheme) error {
		return func(s *apiruntime.Scheme) error {
			for _, o := range objects {
				s.AddKnownTypeWithName(version.WithKind(o), map[string]apiruntime.Object{
					"object": &Object{}, "objectList": &objectList{}, "other": &Object{},
				}[o])
			}
			return nil
		}
	}
	full := &Object{Parts: []part{{Names: []string{"a"}, Number: number(1)}}, Words: map[string]string{"a": "b"}}
	lazy := &shallow{*full}
	for name, c := range map[string]struct {
		do   func(t testing.TB)
		want string // is said; empty: nothing
	}{
		"read":                {func(t testing.TB) { Read[Object](t, file("read", "kind: a\n")) }, ""},
		"an unknown field":    {func(t testing.TB) { Read[Object](t, file("unknown", "knid: a\n")) }, `unknown field "knid"`},
		"a field twice":       {func(t testing.TB) { Read[Object](t, file("twice", "kind: a\nkind: b\n")) }, "already set"},
		"no file":             {func(t testing.TB) { Read[Object](t, filepath.Join(dir, "none")) }, "no such file"},
		"same":                {func(t testing.TB) { Same[Object](t, file("same", "words: {a: b}\n")) }, ""},
		"what is written not": {func(t testing.TB) { Same[Object](t, file("lost", "words: {}\n")) }, "written again"},
		"another part":        {func(t testing.TB) { Same[Object](t, file("part", "words: {}\nkind: a\n"), "kind") }, ""},
		"that part":           {func(t testing.TB) { Same[Object](t, file("its", "words: {}\nkind: a\n"), "words") }, "words written again"},
		"fields not used": {func(t testing.TB) {
			Whole[Object](t, file("unused", "kind: a\nparts: [{names: [x]}]\nwords: {a: b}\n"))
		}, "does not use .Parts.Number"},
		"copied":       {func(t testing.TB) { Copied(t, full) }, ""},
		"shared":       {func(t testing.TB) { Copied(t, lazy) }, "the copy shares .Object.Parts[].Names"},
		"a shared map": {func(t testing.TB) { Copied(t, lazy) }, "the copy shares .Object.Words"},
		"not copied":   {func(t testing.TB) { Copied(t, &forgetful{*full}) }, "the copy differs"},
		"empty":        {func(t testing.TB) { Copied(t, &Object{}) }, "the test shows nothing"},
		"known":        {func(t testing.TB) { Scheme(t, know("object", "objectList"), version, "object") }, ""},
		"no list":      {func(t testing.TB) { Scheme(t, know("object"), version, "object") }, `"objectList"`},
		"one too many": {func(t testing.TB) { Scheme(t, know("object", "objectList", "other"), version, "object") }, "knows other"},
		"scheme failed": {func(t testing.TB) {
			Scheme(t, func(*apiruntime.Scheme) error { return errors.New("no") }, version)
		}, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := record(c.do)
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("said %q, want %q", got, c.want)
			}
		})
	}
}
