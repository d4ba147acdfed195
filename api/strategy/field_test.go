// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy

import (
	"errors"
	"reflect"
	"testing"
)

func TestFieldErrors(t *testing.T) {
	t.Parallel()
	docs, err := Documents([]byte("policy: auto\ncpuBurstPercent: many\nshare: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	var b CPUBurstStrategy
	err = docs[0].Decode(&b)
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) || len(joined.Unwrap()) != 2 {
		t.Fatalf("%v: want two joined errors", err)
	}
	want := []FieldError{{Line: 2, Path: "cpuBurstPercent"}, {Line: 3, Path: "share", Err: ErrUnknownKey}}
	for i, e := range joined.Unwrap() {
		var f FieldError
		if !errors.As(e, &f) || f.Line != want[i].Line || f.Path != want[i].Path || want[i].Err != nil && !errors.Is(f, want[i].Err) {
			t.Errorf("error %d is %v, want line %d of %s", i, e, want[i].Line, want[i].Path)
		}
	}
}

func TestLineOf(t *testing.T) {
	t.Parallel()
	docs, err := Documents([]byte("a:\n  b:\n  - x\n  - c: 1\n    d: 2\n"))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"a": 1, "a.b": 2, "a.b[0]": 3, "a.b[1].c": 4, "a.b[1].d": 5,
		"a.b[1].missing": 4, "a.b[7].c": 2, "nothing": 1, "": 1, "a.b.c": 2,
	} {
		if got := docs[0].LineOf(path); got != want {
			t.Errorf("%q: line %d, want %d", path, got, want)
		}
	}
}

// TestOverlay: given fields win, groups and maps are merged, lists replaced, and nothing is shared.
func TestOverlay(t *testing.T) {
	t.Parallel()
	base := Spec{
		CPUBurstStrategy: &CPUBurstStrategy{Policy: ptr(BurstAuto), CPUBurstPercent: ptr[int64](200)},
		SystemStrategy:   &SystemStrategy{SchedFeatures: map[string]bool{"A": true, "B": true}},
		HostApplications: []HostApplication{{Name: "one"}, {Name: "two"}},
	}
	over := Spec{
		CPUBurstStrategy: &CPUBurstStrategy{CPUBurstPercent: ptr[int64](300)},
		SystemStrategy:   &SystemStrategy{SchedFeatures: map[string]bool{"B": false}},
		HostApplications: []HostApplication{{Name: "three"}},
	}
	want := Spec{
		CPUBurstStrategy: &CPUBurstStrategy{Policy: ptr(BurstAuto), CPUBurstPercent: ptr[int64](300)},
		SystemStrategy:   &SystemStrategy{SchedFeatures: map[string]bool{"A": true, "B": false}},
		HostApplications: []HostApplication{{Name: "three"}},
	}
	got := Overlay(base, over)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("have %+v", got)
	}
	*got.CPUBurstStrategy.Policy = BurstNone
	*got.CPUBurstStrategy.CPUBurstPercent = 1
	got.SystemStrategy.SchedFeatures["A"] = false
	got.SystemStrategy.SchedFeatures["C"] = true
	got.HostApplications[0].Name = "changed"
	if *base.CPUBurstStrategy.Policy != BurstAuto || *over.CPUBurstStrategy.CPUBurstPercent != 300 || over.HostApplications[0].Name != "three" ||
		!base.SystemStrategy.SchedFeatures["A"] || len(base.SystemStrategy.SchedFeatures) != 2 || len(over.SystemStrategy.SchedFeatures) != 1 {
		t.Error("the result shares memory with what it was made of")
	}
	if empty := Overlay(base, Spec{HostApplications: []HostApplication{}}); len(empty.HostApplications) != 0 {
		t.Error("an empty list does not replace a full one")
	}
}
