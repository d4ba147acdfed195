// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/wire"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// allowed ends the test at an error.
func allowed(t testing.TB, err error) {
	t.Helper()
	kerneltest.Permitted(t, err, unix.CAP_DAC_OVERRIDE)
}

// realRoot opens the machine's own hierarchies of that version. The one that /sys/fs/cgroup has is tested here, the other in
// a VM: TestGuestKernelPackages of test/e2e runs in one of each.
func realRoot(t testing.TB, v node.CgroupVersion, o cgroup.Options) cgroup.FS {
	t.Helper()
	other := kerneltest.OfType("/sys/fs/cgroup", unix.CGROUP2_SUPER_MAGIC)
	if v == node.CgroupV2 {
		other = kerneltest.NotOfType("/sys/fs/cgroup", unix.CGROUP2_SUPER_MAGIC)
	}
	if _, err := other(); err == nil {
		kerneltest.LeaveToVM(t, other)
	}
	files, err := cgroup.Open(root.Default(), v, o)
	if err != nil {
		t.Logf("open cgroup v%d: %v", v, err)
		kerneltest.StepAside(t, kerneltest.NotMounted("cgroup"))
	}
	return files
}

// realTree is a subtree of three levels on a real kernel.
type realTree struct {
	fs   cgroup.FS
	base string
	// dirs are its directories, parents first.
	dirs []string
	// moving are parts of the names of files that change by themselves: counters and statistics.
	moving []string
}

// newRealTree makes the subtree in the hierarchy of each knob. made is called with each new directory, and told whether
// more come below it.
func newRealTree(t testing.TB, files cgroup.FS, moving []string, made func(dir string, inner bool), knobs ...plan.Knob) *realTree {
	t.Helper()
	r := &realTree{fs: files, base: fmt.Sprintf("/koordrt-test-%d", os.Getpid()), moving: moving}
	t.Cleanup(func() {
		for _, d := range slices.Backward(r.dirs) {
			if err := os.Remove(d); err != nil {
				t.Errorf("clean up: %v", err)
			}
		}
	})
	for _, k := range knobs {
		for _, sub := range []string{"", "/pod", "/pod/c"} {
			dir, err := files.Dir(plan.Target{Cgroup: r.base + sub}, k)
			if err != nil {
				t.Fatal(err)
			}
			allowed(t, os.Mkdir(dir, 0o755))
			r.dirs = append(r.dirs, dir)
			made(dir, sub != "/pod/c")
		}
	}
	return r
}

// onTrees runs each test on a subtree of its own, with what made has of it.
func onTrees[T any](
	t *testing.T, v node.CgroupVersion, tree func(testing.TB) *realTree, made func(*realTree, *testing.T) T, tests map[string]func(T),
) {
	t.Helper()
	realRoot(t, v, cgroup.Options{}) // else it is left to the VM as a whole
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(made(tree(t), t)) })
	}
}

// snapshot reads what can be set in the subtree.
func (r *realTree) snapshot(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, dir := range r.dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := e.Name()
			if e.IsDir() || slices.ContainsFunc(r.moving, func(part string) bool { return strings.Contains(name, part) }) {
				continue
			}
			if b, err := os.ReadFile(dir + "/" + name); err == nil {
				out[dir+"/"+name] = string(b)
			}
		}
	}
	return out
}

func (r *realTree) at(sub string, level plan.Level, k plan.Knob, v plan.Value) plan.Setting {
	return plan.Setting{Target: plan.Target{Level: level, Cgroup: r.base + sub, Name: "real" + sub}, Knob: k, Value: v}
}

// top, pod and ctr set a number at one of the three levels; cpus a set at all of them, outside first.
func (r *realTree) top(k plan.Knob, n int64) plan.Setting {
	return r.at("", plan.LevelQoS, k, plan.Int(n))
}

func (r *realTree) pod(k plan.Knob, n int64) plan.Setting {
	return r.at("/pod", plan.LevelPod, k, plan.Int(n))
}

func (r *realTree) ctr(k plan.Knob, n int64) plan.Setting {
	return r.at("/pod/c", plan.LevelContainer, k, plan.Int(n))
}

func (r *realTree) cpus(list string) plan.Plan {
	v := plan.Text(list)
	return plan.Plan{r.at("", plan.LevelQoS, plan.CPUSetCPUs, v), r.at("/pod", plan.LevelPod, plan.CPUSetCPUs, v),
		r.at("/pod/c", plan.LevelContainer, plan.CPUSetCPUs, v)}
}

// first is where the steps of both versions begin; the last two settings are for the block device.
func (r *realTree) first(dev string) plan.Plan {
	rbps, wiops := r.ctr(plan.IOReadBPS, 1<<20), r.pod(plan.IOWriteIOPS, 100)
	rbps.Key, wiops.Key = dev, dev
	return plan.Plan{r.pod(plan.CPUShares, 512), r.ctr(plan.CPUShares, 256), r.pod(plan.CPUQuota, 50000), r.ctr(plan.CPUQuota, 50000),
		r.ctr(plan.CPUBurst, 50000), r.pod(plan.MemoryLimit, 1<<27), r.ctr(plan.MemoryLimit, 1<<26+1), rbps, wiops}
}

// unlimited takes the read limit of first back.
func (r *realTree) unlimited(dev string) plan.Setting {
	off := r.ctr(plan.IOReadBPS, -1)
	off.Key = dev
	return off
}

// walk applies one step after the other: every value is written, and read back from the kernel. At the end everything is
// restored byte for byte.
func (r *realTree) walk(t *testing.T, steps []plan.Plan) {
	t.Helper()
	l := &ledger{}
	a, err := apply.New(apply.Options{FS: r.fs, Roots: root.Default(), Journal: l})
	if err != nil {
		t.Fatal(err)
	}
	before := r.snapshot(t)
	for i, p := range steps {
		for _, res := range a.Apply(t.Context(), p, uint64(i)) {
			if res.Err != nil || res.Outcome != apply.Written {
				t.Errorf("step %d: %s of %s: %s, %v", i, res.Setting.Knob, res.Setting.Target, res.Outcome, res.Err)
			}
		}
		for _, m := range a.Verify(p) {
			t.Errorf("step %d: %s", i, m)
		}
	}
	t.Logf("%d records", len(l.all()))
	if maps.Equal(before, r.snapshot(t)) {
		t.Error("nothing has changed")
	}
	for _, s := range a.Restore(t.Context(), l.all(), false) {
		if s.Err != nil || s.Action == apply.ActRecreate {
			t.Errorf("restore %+v", s)
		}
	}
	if diff := kerneltest.Diff(before, r.snapshot(t)); diff != "" {
		t.Errorf("not byte-identical:\n%s", diff)
	}
}

// limits asks for a quota of 90 ms and a burst in a pod with 50 ms: what the kernel refuses is cut to what it accepts, or
// explained. quota and burst are what must stand there then, cut is the knob whose result has a note.
func (r *realTree) limits(t *testing.T, asked, quota, burst int64, cut plan.Knob) {
	t.Helper()
	a, err := apply.New(apply.Options{FS: r.fs, Roots: root.Default(), Journal: &ledger{}})
	if err != nil {
		t.Fatal(err)
	}
	none := plan.Setting{Target: plan.Target{Cgroup: r.base + "/none"}, Knob: plan.CPUShares, Value: plan.Int(2)}
	results := a.Apply(t.Context(), plan.Plan{
		r.pod(plan.CPUQuota, 50000), r.ctr(plan.CPUQuota, 90000), r.ctr(plan.CPUBurst, asked), r.ctr(plan.CPUBvt, 2), none,
	}, 1)
	for i, want := range []apply.Outcome{apply.Written, apply.Written, apply.Written, apply.Failed, apply.Gone} {
		res := &results[i]
		if res.Outcome != want {
			t.Errorf("%s: %s, %v", res.Setting.Knob, res.Outcome, res.Err)
		}
		if res.Setting.Knob == cut && res.Setting.Target.Level == plan.LevelContainer && res.Note == "" {
			t.Errorf("the cut %s has no note: %+v", cut, res)
		}
	}
	if !errors.Is(results[3].Err, apply.ErrUnsupported) {
		t.Errorf("bvt: %v", results[3].Err)
	}
	ctr := plan.Target{Level: plan.LevelContainer, Cgroup: r.base + "/pod/c"}
	for knob, want := range map[plan.Knob]int64{plan.CPUQuota: quota, plan.CPUBurst: burst} {
		if got, err := r.fs.Read(plan.ID{Target: ctr, Knob: knob}); err != nil || got != plan.Int(want) {
			t.Errorf("%s = %s, %v; want %d", knob, got, err, want)
		}
	}
}

// disk is a real block device as "major:minor", empty where there is none.
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

// below gives a process in a group that the container has made itself, as an init system does, a score, reads that from the kernel, and
// takes it back.
func (r *realTree) below(t *testing.T) {
	t.Helper()
	l := &ledger{}
	a, err := apply.New(apply.Options{FS: r.fs, Roots: root.Default(), Journal: l, Tasks: wire.Tasks{FS: proc.FS("/proc")}})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := r.fs.ProcsDir(plan.Target{Cgroup: r.base + "/pod/c"})
	if err != nil {
		t.Fatal(err)
	}
	dir += "/init.scope"
	allowed(t, os.Mkdir(dir, 0o755))
	r.dirs = append(r.dirs, dir)
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the groups are removed
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	pid := strconv.Itoa(cmd.Process.Pid)
	score := func() string {
		t.Helper()
		text, err := root.Read("/proc/" + pid + "/oom_score_adj")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := score()
	allowed(t, root.Write(dir+"/cgroup.procs", pid))
	if got := a.Apply(t.Context(), plan.Plan{r.ctr(plan.OOMScoreAdj, 987)}, 1)[0]; got.Outcome != apply.Written || score() != "987" {
		t.Errorf("%s %v, the process has %s", got.Outcome, got.Err, score())
	}
	if steps := a.Restore(t.Context(), l.all(), false); len(steps) != 1 || steps[0].Err != nil || score() != before {
		t.Errorf("restored %+v, the process has %s, had %s", steps, score(), before)
	}
}
