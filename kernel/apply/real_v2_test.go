// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// realV2 makes a subtree of three levels in the machine's own unified hierarchy. Machines with v1 or hybrid hierarchies
// have none with controllers: TestGuestKernelPackages of test/e2e runs these tests in a VM that has.
func realV2(t *testing.T) (fs cgroup.FS, dirs []string, base string) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &st); err != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		t.Skipf("/sys/fs/cgroup is not cgroup2 (type %#x, %v): lane 3 runs this in a VM", st.Type, err)
	}
	refuse := t.Skipf
	if os.Getenv("CI") != "" {
		refuse = t.Fatalf
	}
	fs, err := cgroup.Open(root.Default(), node.CgroupV2, cgroup.Options{Weight: unit.Quadratic, PodWeight: unit.Linear})
	if err != nil {
		t.Fatal(err)
	}
	base = fmt.Sprintf("/koordrt-test-%d", os.Getpid())
	t.Cleanup(func() {
		for _, d := range slices.Backward(dirs) {
			if err := os.Remove(d); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("clean up: %v", err)
			}
		}
	})
	for _, sub := range []string{"", "/pod", "/pod/c"} {
		dir, err := fs.Dir(plan.Target{Cgroup: base + sub}, plan.CPUShares)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			refuse("cannot make a cgroup as uid %d: %v", os.Getuid(), err)
		}
		dirs = append(dirs, dir)
		if sub == "/pod/c" {
			break
		}
		for _, c := range []string{"+cpu", "+cpuset", "+memory", "+io"} {
			if err := root.Write(dir+"/cgroup.subtree_control", c); err != nil {
				refuse("the parent does not hand this controller down: %v", err)
			}
		}
	}
	return fs, dirs, base
}

// snapshotV2 reads what can be set in the subtree; counters and statistics change by themselves.
func snapshotV2(t *testing.T, dirs []string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := e.Name()
			if e.IsDir() || slices.ContainsFunc([]string{"stat", "current", "events", "peak", "pressure"}, func(s string) bool { return strings.Contains(name, s) }) {
				continue
			}
			if b, err := os.ReadFile(dir + "/" + name); err == nil {
				out[dir+"/"+name] = string(b)
			}
		}
	}
	return out
}

// stepsV2 grow, shrink and move values at the three levels.
func stepsV2(base, dev string) []plan.Plan {
	at := func(sub string, level plan.Level, k plan.Knob, v plan.Value) plan.Setting {
		return plan.Setting{Target: plan.Target{Level: level, Cgroup: base + sub, Name: "real" + sub}, Knob: k, Value: v}
	}
	top := func(k plan.Knob, n int64) plan.Setting { return at("", plan.LevelQoS, k, plan.Int(n)) }
	pod := func(k plan.Knob, n int64) plan.Setting { return at("/pod", plan.LevelPod, k, plan.Int(n)) }
	ctr := func(k plan.Knob, n int64) plan.Setting { return at("/pod/c", plan.LevelContainer, k, plan.Int(n)) }
	cpus := func(list string) plan.Plan {
		return plan.Plan{at("", plan.LevelQoS, plan.CPUSetCPUs, plan.Text(list)), at("/pod", plan.LevelPod, plan.CPUSetCPUs, plan.Text(list)),
			at("/pod/c", plan.LevelContainer, plan.CPUSetCPUs, plan.Text(list))}
	}
	rbps, wiops := ctr(plan.IOReadBPS, 1<<20), pod(plan.IOWriteIOPS, 100)
	rbps.Key, wiops.Key = dev, dev
	off := rbps
	off.Value = plan.Int(-1)
	return []plan.Plan{
		{pod(plan.CPUShares, 512), ctr(plan.CPUShares, 256), pod(plan.CPUQuota, 50000), ctr(plan.CPUQuota, 50000), ctr(plan.CPUBurst, 50000),
			pod(plan.MemoryLimit, 1<<27), ctr(plan.MemoryLimit, 1<<26+1), rbps, wiops},
		{top(plan.MemoryMin, 1<<25), pod(plan.MemoryMin, 1<<25), ctr(plan.MemoryMin, 1<<24+1), ctr(plan.MemoryLow, 1<<25), ctr(plan.MemoryHigh, 1<<26),
			pod(plan.MemoryOOMGroup, 1)},
		append(cpus("0"), ctr(plan.CPUPeriod, 50000), ctr(plan.CPUQuota, 20000)),
		append(cpus("1"), ctr(plan.CPUQuota, 10000), pod(plan.CPUQuota, 20000)),
		{ctr(plan.CPUQuota, 40000), pod(plan.CPUQuota, 80000), ctr(plan.CPUBurst, 30000), ctr(plan.MemoryLimit, -1), ctr(plan.MemoryHigh, -1), off,
			top(plan.MemoryMin, 0), pod(plan.MemoryMin, 0), ctr(plan.MemoryMin, 0)},
		{ctr(plan.CPUIdle, 1)},
	}
}

// TestRealV2: growing, shrinking and moving values on a real kernel, read back from it, then restored byte for byte.
func TestRealV2(t *testing.T) {
	fs, dirs, base := realV2(t)
	l := &ledger{}
	a, err := apply.New(apply.Options{FS: fs, Roots: root.Default(), Journal: l})
	if err != nil {
		t.Fatal(err)
	}
	before := snapshotV2(t, dirs)
	dev := disk(t)
	if dev == "" {
		t.Fatal("no block device: io.max would go untested")
	}
	for i, p := range stepsV2(base, dev) {
		for _, r := range a.Apply(t.Context(), p, uint64(i)) {
			if r.Err != nil || r.Outcome != apply.Written {
				t.Errorf("step %d: %s of %s: %s, %v", i, r.Setting.Knob, r.Setting.Target, r.Outcome, r.Err)
			}
		}
		for _, m := range a.Verify(p) {
			t.Errorf("step %d: %s", i, m)
		}
	}
	t.Logf("%d records", len(l.all()))
	if maps.Equal(before, snapshotV2(t, dirs)) {
		t.Error("nothing has changed")
	}
	for _, s := range a.Restore(t.Context(), l.all(), false) {
		if s.Err != nil || s.Action == apply.ActRecreate {
			t.Errorf("restore %+v", s)
		}
	}
	if diff := kerneltest.Diff(before, snapshotV2(t, dirs)); diff != "" {
		t.Errorf("not byte-identical:\n%s", diff)
	}
}

// TestRealV2Limits: on v2 a child's quota may exceed its parent's; the burst may not exceed the quota and is cut to it.
func TestRealV2Limits(t *testing.T) {
	fs, _, base := realV2(t)
	a, err := apply.New(apply.Options{FS: fs, Roots: root.Default(), Journal: &ledger{}})
	if err != nil {
		t.Fatal(err)
	}
	pod := plan.Target{Level: plan.LevelPod, Cgroup: base + "/pod"}
	ctr := plan.Target{Level: plan.LevelContainer, Cgroup: base + "/pod/c"}
	results := a.Apply(t.Context(), plan.Plan{
		{Target: pod, Knob: plan.CPUQuota, Value: plan.Int(50000)}, {Target: ctr, Knob: plan.CPUQuota, Value: plan.Int(90000)},
		{Target: ctr, Knob: plan.CPUBurst, Value: plan.Int(100000)}, {Target: ctr, Knob: plan.CPUBvt, Value: plan.Int(2)},
		{Target: plan.Target{Cgroup: base + "/none"}, Knob: plan.CPUShares, Value: plan.Int(2)},
	}, 1)
	for i, want := range []apply.Outcome{apply.Written, apply.Written, apply.Written, apply.Failed, apply.Gone} {
		if results[i].Outcome != want {
			t.Errorf("%s: %s, %v", results[i].Setting.Knob, results[i].Outcome, results[i].Err)
		}
	}
	if !errors.Is(results[3].Err, apply.ErrUnsupported) {
		t.Errorf("bvt: %v", results[3].Err)
	}
	for knob, want := range map[plan.Knob]int64{plan.CPUQuota: 90000, plan.CPUBurst: 90000} {
		if got, err := fs.Read(plan.ID{Target: ctr, Knob: knob}); err != nil || got != plan.Int(want) {
			t.Errorf("%s = %s, %v; want %d", knob, got, err, want)
		}
	}
	if results[2].Note == "" {
		t.Errorf("the cut burst has no note: %+v", results[2])
	}
}
