// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import "testing"

// TestDecideAllocations: what a decision and its reply cost in garbage with a thousand containers in the view, as docs/benchmarks has it: 26 on
// average, 23 of an LS, 32 of a BE and 17 of an LSR container. The race detector has up to 3 more, since it drops what a pool keeps.
func TestDecideAllocations(t *testing.T) {
	v, requests, err := paper()
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) != decideContainers || len(v.Pods) != decideContainers/2 {
		t.Fatalf("%d containers, %d pods in the view", len(requests), len(v.Pods))
	}
	for what, c := range map[string]struct {
		of   []request
		most float64
	}{"any": {requests, 30}, "LS": {requests[:1], 27}, "BE": {requests[10:11], 37}, "LSR": {requests[18:19], 21}} {
		n := testing.AllocsPerRun(10_000/len(c.of), func() {
			for i := range c.of {
				if adj, _ := decideOne(v, c.of[i].pod, c.of[i].container); adj == nil {
					t.Fatal("nothing is adjusted")
				}
			}
		}) / float64(len(c.of))
		if n > c.most {
			t.Errorf("a decision (%s) takes %v allocations, want at most %v", what, n, c.most)
		}
		t.Logf("%s: %v", what, n)
	}
}
