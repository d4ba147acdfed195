// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// realV1 makes a subtree of three levels in the machine's own cgroup v1 hierarchies; a cpuset starts empty there.
func realV1(t testing.TB) *realTree {
	t.Helper()
	fill := func(dir string, _ bool) {
		for _, f := range []string{"/cpuset.cpus", "/cpuset.mems"} {
			parent, err := root.Read(dir[:strings.LastIndexByte(dir, '/')] + f)
			if err != nil {
				continue // not the cpuset hierarchy
			}
			if err := root.Write(dir+f, parent); err != nil {
				t.Fatal(err)
			}
		}
	}
	return newRealTree(t, realRoot(t, node.CgroupV1, cgroup.Options{}), []string{"stat", "usage", "failcnt", "io_service"}, fill,
		plan.CPUShares, plan.CPUSetCPUs, plan.MemoryLimit, plan.IOReadBPS)
}

// TestRealV1: growing, shrinking and moving values on a real kernel, read back from it, then restored byte for byte.
func TestRealV1(t *testing.T) {
	r := realV1(t)
	dev := disk(t)
	inside := r.cpus("1")
	slices.Reverse(inside)
	steps := []plan.Plan{
		r.first(dev),
		append(r.cpus("0"), r.ctr(plan.CPUPeriod, 50000), r.ctr(plan.CPUQuota, 20000)),
		append(inside, r.ctr(plan.CPUQuota, 10000), r.pod(plan.CPUQuota, 20000)),
		{r.ctr(plan.CPUQuota, 40000), r.pod(plan.CPUQuota, 80000), r.ctr(plan.CPUBurst, 30000), r.ctr(plan.MemoryLimit, -1), r.unlimited(dev)},
		{r.ctr(plan.CPUIdle, 1), r.ctr(plan.CPUShares, 2)},
	}
	if dev == "" {
		t.Log("no block device: blkio is left out")
		steps[0], steps[3] = steps[0][:len(steps[0])-2], steps[3][:len(steps[3])-1]
	}
	if cpus, err := r.fs.Read(plan.ID{Target: plan.Target{Cgroup: "/"}, Knob: plan.CPUSetCPUs}); err != nil || cpus.String() == "0" {
		t.Logf("no two CPUs (%s, %v): cpusets are left out", cpus, err)
		for i, p := range steps {
			steps[i] = slices.DeleteFunc(p, func(s plan.Setting) bool { return s.Knob == plan.CPUSetCPUs })
		}
	}
	r.walk(t, steps)
}

// TestRealV1Limits: a child's quota may not exceed its parent's, and the burst not the quota.
func TestRealV1Limits(t *testing.T) {
	realV1(t).limits(t, 80000, 50000, 50000, plan.CPUQuota)
}

// TestRealV1Below: processes in groups below a container's own are the container's.
func TestRealV1Below(t *testing.T) { realV1(t).below(t) }

// BenchmarkVerifyRealV1 is the proof at start on real cgroup files.
func BenchmarkVerifyRealV1(b *testing.B) {
	r := realV1(b)
	a, err := apply.New(apply.Options{FS: r.fs, Roots: root.Default(), Journal: &ledger{}})
	if err != nil {
		b.Fatal(err)
	}
	var p plan.Plan
	t := plan.Target{Level: plan.LevelContainer, Cgroup: r.base + "/pod/c"}
	for _, k := range []plan.Knob{plan.CPUShares, plan.CPUQuota, plan.CPUPeriod, plan.CPUBurst, plan.CPUSetCPUs, plan.CPUSetMems, plan.MemoryLimit} {
		if v, err := r.fs.Read(plan.ID{Target: t, Knob: k}); err == nil {
			p = append(p, plan.Setting{Target: t, Knob: k, Value: v})
		}
	}
	for len(p) < 12 {
		p = append(p, p[len(p)%7])
	}
	b.ReportAllocs()
	for b.Loop() {
		if bad := a.Verify(p); bad != nil {
			b.Fatal(bad)
		}
	}
}
