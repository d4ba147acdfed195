// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"errors"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
)

// twelve is a container's plan of twelve files.
func twelve() plan.Plan {
	return plan.Plan{
		set(ctr, plan.CPUShares, plan.Int(1024)), set(ctr, plan.CPUQuota, plan.Int(50000)), set(ctr, plan.CPUBurst, plan.Int(50000)), set(ctr, plan.CPUSetCPUs, plan.Text("0-3")),
		set(ctr, plan.CPUSetMems, plan.Text("0")), set(ctr, plan.MemoryLimit, plan.Int(1<<30)), set(ctr, plan.MemoryMin, plan.Int(4096)), set(ctr, plan.MemoryLow, plan.Int(4096)),
		set(ctr, plan.MemoryHigh, plan.Int(1<<29)), set(ctr, plan.MemoryOOMGroup, plan.Int(1)), keyed(ctr, plan.IOReadBPS, "8:0", plan.Int(1<<20)), keyed(ctr, plan.IOWeight, "8:0", plan.Int(50)),
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12")
	p := twelve()
	if bad := m.Verify(p); len(bad) < 10 {
		t.Errorf("before Apply only %d mismatches", len(bad))
	}
	m.apply(t, p...)
	if bad := m.Verify(p); bad != nil {
		t.Errorf("after Apply: %v", bad)
	}
	m.Set(t, ctr, "cpuset.cpus", "0-4")
	m.Set(t, ctr, "memory.high", "rubbish")
	bad := m.Verify(p)
	if len(bad) != 2 || bad[0].Got != plan.Text("0-4") || bad[0].Setting.Knob != plan.CPUSetCPUs || bad[1].Err == nil {
		t.Errorf("drift: %v", bad)
	}
	m.Rmdir(t, ctr)
	if bad := m.Verify(p[:1]); len(bad) != 1 || !errors.Is(bad[0].Err, apply.ErrGone) {
		t.Errorf("gone: %v", bad)
	}
}

func TestVerifyDoesNotAllocate(t *testing.T) {
	m := newMachine(t, "6.12")
	p := twelve()
	m.apply(t, p...)
	if n := testing.AllocsPerRun(100, func() {
		if m.Verify(p) != nil {
			t.Fatal("mismatch")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkVerify(b *testing.B) {
	m := newMachine(b, "6.12")
	p := twelve()
	m.apply(b, p...)
	b.ReportAllocs()
	for b.Loop() {
		if m.Verify(p) != nil {
			b.Fatal("mismatch")
		}
	}
}
