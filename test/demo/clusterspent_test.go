// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// What BE used is within what its quota was filled with, also where that was cut, and grew again; a class that is not held has used more.
func TestSpending(t *testing.T) {
	t.Parallel()
	r := recorded()
	for _, p := range r.spending(2) {
		if p.used > p.filled {
			t.Errorf("%s: %.2f of %.2f", p.name, p.used, p.filled)
		}
	}
	var out bytes.Buffer
	r.spendingTable(&screen{out: &out, width: 100}, 2)
	// 7 half seconds at 1.2 CPUs: 4.2; and a period at 1.2, and 2 × 25 ms. Under the load 2 and 14 at 0.2: 2.6; of the latter the first counts as one at
	// 1.2, as the cut came in it, and is filled twice.
	for _, want := range []string{"\n  before the load  4.20     4.37\n", "\n  under the load   2.60     3.44\n", "\n  after the load   "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	free := *r
	free.samples = slices.Clone(r.samples)
	for i := range free.samples {
		free.samples[i].be = 1.2
	}
	if p := free.spending(2)[1]; p.used <= p.filled {
		t.Errorf("%s: %.2f of %.2f, and nobody was held", p.name, p.used, p.filled)
	}
	// A sample that comes seconds late has not seen what the quota was meanwhile.
	late := &recording{samples: []sample{{at: every, may: 0.2}, {at: every * 7, may: 0.2, be: 0.5}}}
	if p := late.spending(2)[0]; p.used > p.filled {
		t.Errorf("late: %.2f of %.2f", p.used, p.filled)
	}
}
