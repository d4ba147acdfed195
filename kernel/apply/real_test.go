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
)

// realV1 makes a subtree of three levels in the machine's own cgroup v1 hierarchies. It skips only where the machine
// shows that it has none, or where this process may not make one; on CI (variable CI) that is a failure.
func realV1(t *testing.T) (fs cgroup.FS, base string) {
	t.Helper()
	refuse := t.Skipf
	if os.Getenv("CI") != "" {
		refuse = t.Fatalf
	}
	var st unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &st); err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
		t.Skip("/sys/fs/cgroup is cgroup2: there is no v1 hierarchy here; lane 3 tests v2")
	}
	fs, err := cgroup.Open(root.Default(), node.CgroupV1, cgroup.Options{})
	if err != nil {
		refuse("no cgroup v1: %v", err)
	}
	base = fmt.Sprintf("/koordrt-test-%d", os.Getpid())
	dirs := realDirs(t, fs, base)
	t.Cleanup(func() {
		for _, d := range slices.Backward(dirs) {
			if err := os.Remove(d); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("clean up: %v", err)
			}
		}
	})
	for _, d := range dirs {
		if err := os.Mkdir(d, 0o755); err != nil {
			refuse("cannot make a cgroup as uid %d: %v", os.Getuid(), err)
		}
		for _, f := range []string{"/cpuset.cpus", "/cpuset.mems"} {
			parent, err := root.Read(d[:strings.LastIndexByte(d, '/')] + f)
			if err != nil {
				continue // not the cpuset hierarchy
			}
			if err := root.Write(d+f, parent); err != nil {
				t.Fatal(err)
			}
		}
	}
	return fs, base
}

func realDirs(t *testing.T, fs cgroup.FS, base string) []string {
	t.Helper()
	var dirs []string
	for _, k := range []plan.Knob{plan.CPUShares, plan.CPUSetCPUs, plan.MemoryLimit, plan.IOReadBPS} {
		for _, sub := range []string{"", "/pod", "/pod/c"} {
			dir, err := fs.Dir(plan.Target{Cgroup: base + sub}, k)
			if err != nil {
				t.Fatal(err)
			}
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// snapshot reads the limits of the subtree; counters and statistics change by themselves.
func snapshot(t *testing.T, fs cgroup.FS, base string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, dir := range realDirs(t, fs, base) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := e.Name()
			if e.IsDir() || strings.Contains(name, "stat") || strings.Contains(name, "usage") || strings.Contains(name, "failcnt") || strings.Contains(name, "io_service") {
				continue
			}
			if b, err := os.ReadFile(dir + "/" + name); err == nil {
				out[dir+"/"+name] = string(b)
			}
		}
	}
	return out
}

// disk is a real block device as "major:minor".
func disk(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir("/sys/block")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "loop") || strings.HasPrefix(e.Name(), "zram") {
			continue
		}
		if dev, err := root.Read("/sys/block/" + e.Name() + "/dev"); err == nil {
			return dev
		}
	}
	return ""
}

// TestRealV1: growing, shrinking and moving values on a real kernel, read back from it, then restored byte for byte.
func TestRealV1(t *testing.T) {
	fs, base := realV1(t)
	l := &ledger{}
	a, err := apply.New(apply.Options{FS: fs, Roots: root.Default(), Journal: l})
	if err != nil {
		t.Fatal(err)
	}
	at := func(sub string, level plan.Level, k plan.Knob, v plan.Value) plan.Setting {
		return plan.Setting{Target: plan.Target{Level: level, Cgroup: base + sub, Name: "real" + sub}, Knob: k, Value: v}
	}
	top := func(k plan.Knob, v plan.Value) plan.Setting { return at("", plan.LevelQoS, k, v) }
	pod := func(k plan.Knob, v plan.Value) plan.Setting { return at("/pod", plan.LevelPod, k, v) }
	ctr := func(k plan.Knob, v plan.Value) plan.Setting { return at("/pod/c", plan.LevelContainer, k, v) }
	before := snapshot(t, fs, base)
	dev := disk(t)
	rbps, wiops := ctr(plan.IOReadBPS, plan.Int(1<<20)), pod(plan.IOWriteIOPS, plan.Int(100))
	rbps.Key, wiops.Key = dev, dev
	off := rbps
	off.Value = plan.Int(-1)
	steps := []plan.Plan{
		{pod(plan.CPUShares, plan.Int(512)), ctr(plan.CPUShares, plan.Int(256)), pod(plan.CPUQuota, plan.Int(50000)), ctr(plan.CPUQuota, plan.Int(50000)),
			ctr(plan.CPUBurst, plan.Int(50000)), pod(plan.MemoryLimit, plan.Int(1<<27)), ctr(plan.MemoryLimit, plan.Int(1<<26+1)), rbps, wiops},
		{top(plan.CPUSetCPUs, plan.Text("0")), pod(plan.CPUSetCPUs, plan.Text("0")), ctr(plan.CPUSetCPUs, plan.Text("0")), ctr(plan.CPUPeriod, plan.Int(50000)), ctr(plan.CPUQuota, plan.Int(20000))},
		{ctr(plan.CPUSetCPUs, plan.Text("1")), pod(plan.CPUSetCPUs, plan.Text("1")), top(plan.CPUSetCPUs, plan.Text("1")), ctr(plan.CPUQuota, plan.Int(10000)), pod(plan.CPUQuota, plan.Int(20000))},
		{ctr(plan.CPUQuota, plan.Int(40000)), pod(plan.CPUQuota, plan.Int(80000)), ctr(plan.CPUBurst, plan.Int(30000)), ctr(plan.MemoryLimit, plan.Int(-1)), off},
		{ctr(plan.CPUIdle, plan.Int(1)), ctr(plan.CPUShares, plan.Int(2))},
	}
	if dev == "" {
		t.Log("no block device: blkio is left out")
		steps[0], steps[3] = steps[0][:len(steps[0])-2], steps[3][:len(steps[3])-1]
	}
	for i, p := range steps {
		if cpus, err := fs.Read(plan.ID{Target: plan.Target{Cgroup: "/"}, Knob: plan.CPUSetCPUs}); err != nil || cpus.String() == "0" {
			p = slices.DeleteFunc(p, func(s plan.Setting) bool { return s.Knob == plan.CPUSetCPUs })
		}
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
	if maps.Equal(before, snapshot(t, fs, base)) {
		t.Error("nothing has changed")
	}
	for _, s := range a.Restore(t.Context(), l.all(), false) {
		if s.Err != nil || s.Action == apply.ActRecreate {
			t.Errorf("restore %+v", s)
		}
	}
	if diff := kerneltest.Diff(before, snapshot(t, fs, base)); diff != "" {
		t.Errorf("not byte-identical:\n%s", diff)
	}
}

// TestRealV1Limits: what the kernel refuses is cut to what it accepts, or explained.
func TestRealV1Limits(t *testing.T) {
	fs, base := realV1(t)
	a, err := apply.New(apply.Options{FS: fs, Roots: root.Default(), Journal: &ledger{}})
	if err != nil {
		t.Fatal(err)
	}
	pod := plan.Target{Level: plan.LevelPod, Cgroup: base + "/pod"}
	ctr := plan.Target{Level: plan.LevelContainer, Cgroup: base + "/pod/c"}
	results := a.Apply(t.Context(), plan.Plan{
		{Target: pod, Knob: plan.CPUQuota, Value: plan.Int(50000)}, {Target: ctr, Knob: plan.CPUQuota, Value: plan.Int(90000)},
		{Target: ctr, Knob: plan.CPUBurst, Value: plan.Int(80000)}, {Target: ctr, Knob: plan.CPUBvt, Value: plan.Int(2)},
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
	for knob, want := range map[plan.Knob]int64{plan.CPUQuota: 50000, plan.CPUBurst: 50000} {
		if got, err := fs.Read(plan.ID{Target: ctr, Knob: knob}); err != nil || got != plan.Int(want) {
			t.Errorf("%s = %s, %v; want %d", knob, got, err, want)
		}
	}
	if results[1].Note == "" {
		t.Errorf("the cut quota has no note: %+v", results[1])
	}
}

// BenchmarkVerifyRealV1 is the proof at start on real cgroup files.
func BenchmarkVerifyRealV1(b *testing.B) {
	fs, err := cgroup.Open(root.Default(), node.CgroupV1, cgroup.Options{})
	if err != nil {
		b.Skipf("no cgroup v1: %v", err)
	}
	a, err := apply.New(apply.Options{FS: fs, Roots: root.Default(), Journal: &ledger{}})
	if err != nil {
		b.Fatal(err)
	}
	var p plan.Plan
	t := plan.Target{Level: plan.LevelQoS, Cgroup: "/"}
	for _, k := range []plan.Knob{plan.CPUShares, plan.CPUQuota, plan.CPUPeriod, plan.CPUBurst, plan.CPUSetCPUs, plan.CPUSetMems, plan.MemoryLimit} {
		if v, err := fs.Read(plan.ID{Target: t, Knob: k}); err == nil {
			p = append(p, plan.Setting{Target: t, Knob: k, Value: v})
		}
	}
	for len(p) < 12 {
		p = append(p, p[len(p)%7])
	}
	b.ReportAllocs()
	for b.Loop() {
		if a.Verify(p) != nil {
			b.Fatal("mismatch")
		}
	}
}
