// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"testing"

	"github.com/koord-rt/koord-rt/model/workload"
)

// How a container came is what the registry knows, whatever was read meanwhile: by who swaps it (an update, a second life) and by a list of the runtime.
func TestHowItCameStays(t *testing.T) {
	t.Parallel()
	for _, had := range []entry{{unmanaged: true, counted: true}, {}} {
		r := newRegistry()
		had.c, had.sandbox = &workload.Container{ID: "c"}, "s"
		r.set(had)
		read := entry{c: &workload.Container{ID: "c"}, sandbox: "s", unmanaged: !had.unmanaged}
		stays := func(what string) {
			t.Helper()
			if now, _ := r.container("c"); now.unmanaged != had.unmanaged || now.counted != had.counted {
				t.Errorf("%s: came without us %t, counted %t, want %t, %t", what, now.unmanaged, now.counted, had.unmanaged, had.counted)
			}
		}
		if !r.swapContainer(&had, read) {
			t.Fatal("it was not swapped")
		}
		stays("swapped")
		r.replace(nil, nil, []entry{read})
		stays("listed")
	}
}
