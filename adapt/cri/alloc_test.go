// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// hotPlan is what a batch container gets.
func hotPlan() plan.Plan {
	return plan.Plan{number(plan.CPUShares, 512), number(plan.CPUQuota, 50000), number(plan.MemoryLimit, 1<<31), set(plan.CPUSetCPUs, "", plan.Text("4-5")),
		number(plan.MemoryHigh, 1<<29), number(plan.MemoryMin, 4096), set(plan.RDTClass, "", plan.Text("BE")), number(plan.CPUBvt, -1)}
}

// TestAllocations bounds the way of a CreateContainerRequest with 40 variables through us, without the decision. The
// generated types of the CRI API take some 260 for reading it and some 300 for reading and writing.
func TestAllocations(t *testing.T) {
	raw, v, p := marshal(t, createRequest()), view("containerd", "v2.4.2"), hotPlan()
	if n := testing.AllocsPerRun(200, func() { pass(t, raw, v, p) }); n > 60 {
		t.Errorf("%v allocations, want at most 60", n)
	}
}

func BenchmarkCreateContainer(b *testing.B) {
	raw, v, p := marshal(b, createRequest()), view("containerd", "v2.4.2"), hotPlan()
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		pass(b, raw, v, p)
	}
}

// pass reads a request, renders the plan and patches.
func pass(t testing.TB, raw []byte, v *node.View, p plan.Plan) {
	r, err := cri.ReadCreateContainer(raw)
	if err != nil {
		t.Fatal(err)
	}
	patch, rest := cri.Create(v, p, r, r.Container(), by())
	out, err := r.Patch(patch)
	if err != nil || len(out) <= len(raw) || len(rest) != 2 {
		t.Fatalf("%v: %d bytes, %d left", err, len(out), len(rest))
	}
}
