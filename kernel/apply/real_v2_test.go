// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// realV2 makes a subtree of three levels in the machine's own unified hierarchy. Machines with v1 or hybrid hierarchies
// have none with controllers: TestGuestKernelPackages of test/e2e runs these tests in a VM that has.
func realV2(t testing.TB) *realTree {
	t.Helper()
	files := realRoot(t, node.CgroupV2, cgroup.Options{Weight: unit.Quadratic, PodWeight: unit.Linear})
	handDown := func(dir string, inner bool) {
		for _, c := range []string{"cpu", "cpuset", "memory", "io"} {
			if !inner {
				return
			}
			none := kerneltest.NoController(dir, c)
			if _, err := none(); err == nil {
				kerneltest.StepAside(t, none)
			}
			allowed(t, root.Write(dir+"/cgroup.subtree_control", "+"+c))
		}
	}
	return newRealTree(t, files, []string{"stat", "current", "events", "peak", "pressure"}, handDown, plan.CPUShares)
}

// TestRealV2: growing, shrinking and moving values on a real kernel, read back from it, then restored byte for byte.
func TestRealV2(t *testing.T) {
	r := realV2(t)
	dev := disk(t)
	if dev == "" {
		t.Fatal("no block device: io.max would go untested")
	}
	r.walk(t, []plan.Plan{
		r.first(dev),
		{r.top(plan.MemoryMin, 1<<25), r.pod(plan.MemoryMin, 1<<25), r.ctr(plan.MemoryMin, 1<<24+1), r.ctr(plan.MemoryLow, 1<<25),
			r.ctr(plan.MemoryHigh, 1<<26), r.pod(plan.MemoryOOMGroup, 1)},
		append(r.cpus("0"), r.ctr(plan.CPUPeriod, 50000), r.ctr(plan.CPUQuota, 20000)),
		append(r.cpus("1"), r.ctr(plan.CPUQuota, 10000), r.pod(plan.CPUQuota, 20000)),
		{r.ctr(plan.CPUQuota, 40000), r.pod(plan.CPUQuota, 80000), r.ctr(plan.CPUBurst, 30000), r.ctr(plan.MemoryLimit, -1), r.ctr(plan.MemoryHigh, -1),
			r.unlimited(dev), r.top(plan.MemoryMin, 0), r.pod(plan.MemoryMin, 0), r.ctr(plan.MemoryMin, 0)},
		{r.ctr(plan.CPUIdle, 1)},
		{r.ctr(plan.CPUIdle, 0), r.ctr(plan.CPUShares, 2)}, // the least weight, which some kernels show already
	})
}

// TestRealV2Below: processes in groups below a container's own are the container's. There its own has none.
func TestRealV2Below(t *testing.T) { realV2(t).below(t) }

// TestRealV2Limits: on v2 a child's quota may exceed its parent's; the burst may not exceed the quota and is cut to it.
func TestRealV2Limits(t *testing.T) {
	realV2(t).limits(t, 100000, 90000, 90000, plan.CPUBurst)
}
