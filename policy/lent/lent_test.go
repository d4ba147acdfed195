// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package lent_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/lent"
)

func same(want, stands int64) bool { return want == stands }

// A value through its life: wanted, lost and set again until it is left to the other, wanted anew, and given back, whichever of ours stands.
func TestLife(t *testing.T) {
	t.Parallel()
	const k = plan.VMWatermarkScale
	stands, exists := int64(10), true
	var books []lent.Held[int64]
	want := func(v int64) *lent.Held[int64] {
		h, keep := lent.Want(lent.Find(books, k, ""), k, "", v, stands, stands, same)
		if books = nil; keep {
			books = []lent.Held[int64]{h}
		}
		return &h
	}
	given := func() (v int64) {
		books = lent.Back(books, nil, func(plan.Knob, string) (int64, bool) { return stands, exists }, same, func(_ plan.Knob, h *lent.Held[int64]) { v = h.Original })
		return v
	}
	if h := want(10); !h.Stood || len(books) > 0 {
		t.Errorf("what stands without us is in the books: %+v", books)
	}
	if h := want(20); h.Stood || h.Original != 10 {
		t.Errorf("wanted: %+v", h)
	}
	for range 11 {
		stands = 20
		want(20)
		stands = 15
		want(20)
	}
	if !books[0].Left() || given() != 0 || len(books) > 0 {
		t.Errorf("somebody else's: %+v", books)
	}

	stands = 10
	want(20)
	stands = 20
	want(20)
	if h := want(30); h.Former != 20 || h.Left() {
		t.Errorf("not written yet: %+v", h)
	}
	exists = false
	if given() != 0 || len(books) != 1 {
		t.Errorf("not to be read: %+v", books)
	}
	exists = true
	for range 2 { // refused once
		if given() != 10 || len(books) != 1 {
			t.Errorf("the former one of ours stands: %+v", books)
		}
	}
	if stands = 10; given() != 0 || len(books) > 0 {
		t.Errorf("back: %+v", books)
	}
	if a := []lent.Held[int64]{{Knob: "k", Ours: 1}}; !lent.Same(a, []lent.Held[int64]{{Knob: "k", Ours: 1, Lost: 3}}) || lent.Same(a, nil) {
		t.Error("what is ours is another by how it fares, or the same as nothing")
	}
}
