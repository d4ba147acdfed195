// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"strconv"
	"testing"
)

// The last ones are remembered, and no more of them than there is room for.
func TestRemovals(t *testing.T) {
	t.Parallel()
	var r removals
	for i := range 3 * maxRemoved {
		r.add(strconv.Itoa(i))
		r.add(strconv.Itoa(i))
	}
	if len(r.ids) != maxRemoved || len(r.ring) != maxRemoved || !r.has(strconv.Itoa(2*maxRemoved)) || r.has(strconv.Itoa(2*maxRemoved-1)) {
		t.Errorf("%d of %d are remembered", len(r.ids), len(r.ring))
	}
	last := strconv.Itoa(3*maxRemoved - 1)
	if r.forget(last); r.has(last) {
		t.Error("not forgotten")
	}
}
