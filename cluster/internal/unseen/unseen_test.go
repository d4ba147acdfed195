// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package unseen

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestBehind: a cache is behind as long as it has an older version of the object that was written, and not for ever.
func TestBehind(t *testing.T) {
	t.Parallel()
	at := func(uid types.UID, version string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{UID: uid, ResourceVersion: version}
	}
	for name, c := range map[string]struct {
		cached *metav1.ObjectMeta
		want   bool
	}{
		"before": {at("u", "9"), true}, "it": {at("u", "10"), false}, "after": {at("u", "11"), false}, "another object": {at("v", "9"), false},
		"no number": {at("u", "x"), false},
	} {
		var w Writes[string]
		if w.Behind("n", c.cached) {
			t.Errorf("%s: behind of nothing", name)
		}
		w.Wrote("n", at("u", "10"))
		if w.Behind("other", c.cached) {
			t.Errorf("%s: behind of another's", name)
		}
		if got := w.Behind("n", c.cached); got != c.want {
			t.Errorf("%s: behind: %t", name, got)
		}
		if kept := len(w.of) > 0; kept != c.want {
			t.Errorf("%s: kept: %t", name, kept)
		}
		w.Forget("n")
		if w.Behind("n", c.cached) {
			t.Errorf("%s: behind of what has gone", name)
		}
	}
	var w Writes[string]
	w.Wrote("n", at("u", "10"))
	for range Most {
		if !w.Behind("n", at("u", "9")) {
			t.Fatal("not waited for")
		}
	}
	if w.Behind("n", at("u", "9")) {
		t.Error("waited for for ever")
	}
}
