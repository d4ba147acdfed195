// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

var update = flag.Bool("update", false, "rewrite golden files")

const (
	podDir = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice"
	appDir = podDir + "/cri-containerd-0123456789abcdef.scope"
	webDir = podDir + "/cri-containerd-fedcba9876543210.scope"
)

var (
	pod = plan.Target{Level: plan.LevelPod, Cgroup: podDir, Pod: "uid-1", Name: "default/web"}
	app = plan.Target{Level: plan.LevelContainer, Cgroup: appDir, Pod: "uid-1", Container: "0123456789abcdef", Name: "default/web/app"}
	web = plan.Target{Level: plan.LevelContainer, Cgroup: webDir, Pod: "uid-1", Container: "fedcba9876543210", Name: "default/web/side"}
)

func set(t plan.Target, k plan.Knob, v plan.Value, f protocol.Feature, reason string) plan.Setting {
	return plan.Setting{Target: t, Knob: k, Value: v, Owner: f, Reason: reason}
}

// host is a fake machine on which the plugin has worked and died.
type host struct {
	tree *kerneltest.Tree
	dir  string
	// now is the plugin's clock.
	now func() time.Time
	// units stands in for systemd, nil for a host without.
	units apply.Units
}

func newHost(t *testing.T, kernel string) *host {
	t.Helper()
	h := &host{tree: kerneltest.New(t, kernel, podDir, appDir, webDir)}
	h.dir = filepath.Dir(h.tree.Roots.Proc)
	h.now = func() time.Time { return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC) }
	h.connected(t)
	return h
}

func (h *host) runDir() string { return filepath.Join(h.dir, "run/koord-rt") }

// work applies a plan as the plugin would and records what went through the runtime.
func (h *host) work(t *testing.T, p plan.Plan, more ...journal.Record) {
	t.Helper()
	l, err := ledger.Open(h.runDir(), "nri", ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := h.now()
	a, err := apply.New(apply.Options{FS: h.files(t), Roots: h.tree.Roots, Journal: l, Writer: h.tree, Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range a.Apply(t.Context(), p, 7) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	for i := range more {
		more[i].Time, more[i].Gen = at, 7
		if err := l.Append(more[i]); err != nil {
			t.Fatal(err)
		}
	}
}

func (h *host) files(t *testing.T) cgroup.FS {
	t.Helper()
	fs, err := cgroup.Open(h.tree.Roots, h.tree.Version, cgroup.Options{Weight: unit.Quadratic, PodWeight: unit.Linear})
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

func (h *host) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := command(&env{out: &out, err: &out, version: run.Version{Program: "koordctl"}, writer: h.tree, units: h.units})
	cmd.SetArgs(append([]string{"--host-root", h.dir}, args...))
	err := cmd.ExecuteContext(t.Context())
	return strings.ReplaceAll(out.String(), h.dir, "HOST"), err
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	// Trailing blanks of a table are no content.
	lines := strings.Split(got, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	got = strings.Join(lines, "\n")
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

// colocated is a pod that the plugin has set up: its cgroup by direct writes, a container through the runtime.
func colocated(t *testing.T, kernel string) *host {
	h := newHost(t, kernel)
	observed := set(pod, plan.MemoryMin, plan.Int(4096), protocol.FeatureMemory, "LS: 100 % of request")
	observed.Observe = true
	p := plan.Plan{
		set(pod, plan.CPUShares, plan.Int(2), protocol.FeatureBatch, "batch-cpu 0"),
		set(pod, plan.CPUQuota, plan.Int(200000), protocol.FeatureBatch, "batch-cpu limit 2"),
		set(app, plan.CPUSetCPUs, plan.Text("0-3"), protocol.FeatureCPUSet, "resource-status"),
		observed,
	}
	if h.tree.Version == node.CgroupV2 {
		p = append(p, set(pod, plan.MemoryHigh, plan.Int(1<<30), protocol.FeatureMemory, "throttling 80 %"))
	}
	h.work(t, p,
		journal.Record{Target: app, Knob: plan.CPUQuota.String(), Base: "300000", Want: "100000", Owner: "batch", Reason: "batch-cpu limit 1", Via: journal.ViaRuntime},
		journal.Record{Target: app, Knob: plan.Env.String(), Key: "NVIDIA_VISIBLE_DEVICES", Want: "set", Owner: "devices", Reason: "device-allocated", Via: journal.ViaRuntime},
		journal.Record{Target: pod, Key: protocol.AnnotationCPUBurst, Reason: "not JSON \x1b[31mred", Via: journal.ViaProblem},
	)
	quota(t, h, "100000")
	return h
}

// quota sets the container's quota as the runtime would.
func quota(t *testing.T, h *host, us string) {
	if h.tree.Version == node.CgroupV2 {
		h.tree.Set(t, appDir, "cpu.max", us+" 100000")
		return
	}
	h.tree.Set(t, appDir, "cpu.cfs_quota_us", us)
}

func TestExplain(t *testing.T) {
	t.Parallel()
	for _, kernel := range []string{"6.12", "v1"} {
		h := colocated(t, kernel)
		for _, arg := range []string{"default/web", "uid-1"} {
			out, err := h.run(t, "explain", arg)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "explain-pod-"+kernel, out)
		}
		for _, arg := range []string{"0123", "containerd://0123456789abcdef", "default/web/app"} {
			out, err := h.run(t, "explain", arg)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "explain-container-"+kernel, out)
		}
	}
}

// The newest drift is told with whose it may have been, in words and as JSON.
func TestExplainDrift(t *testing.T) {
	t.Parallel()
	h := colocated(t, "6.12")
	for _, by := range []string{"someone", "runtime-or-systemd"} {
		h.work(t, nil, journal.Record{
			Target: app, Knob: plan.CPUQuota.String(), Want: "100000", Found: "300000", Source: by, Via: journal.ViaDrift,
		})
	}
	out, err := h.run(t, "explain", "default/web/app")
	if err != nil || !strings.Contains(out, "[last drift 2026-05-01T12:00:00Z: 300000 by runtime or systemd]") || strings.Contains(out, "someone") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = h.run(t, "explain", "default/web/app", "-o", "json")
	if err != nil || !strings.Contains(out, `"source": "runtime-or-systemd"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestExplainUnknownAndAmbiguous(t *testing.T) {
	t.Parallel()
	h := colocated(t, "6.12")
	for _, arg := range []string{"nobody/there", "ffff", "", "012"} {
		if _, err := h.run(t, "explain", arg); !errors.Is(err, errNoSubject) {
			t.Errorf("explain %q: %v", arg, err)
		}
	}
	twin := app
	twin.Container, twin.Name = "0123ffff", "default/web/twin"
	h.work(t, nil, journal.Record{Target: twin, Knob: "cpu.shares", Want: "2", Via: journal.ViaRuntime})
	if _, err := h.run(t, "explain", "0123"); err == nil || !strings.Contains(err.Error(), "ambiguous") {
		t.Errorf("ambiguous: %v", err)
	}
}

func TestExplainOfAGonePod(t *testing.T) {
	t.Parallel()
	h := colocated(t, "6.12")
	h.tree.Rmdir(t, appDir)
	if _, err := h.run(t, "explain", "0123"); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("explain of a removed container: %v", err)
	}
}

func TestDiffSeesDriftAndExitsWithOne(t *testing.T) {
	t.Parallel()
	h := colocated(t, "6.12")
	out, err := h.run(t, "diff", "--exit-code")
	if err != nil || out != "0 of 7 settings differ from the kernel\n" {
		t.Fatalf("before: %v\n%s", err, out)
	}
	quota(t, h, "max")
	h.tree.Set(t, podDir, "memory.high", "max")
	out, err = h.run(t, "diff", "--exit-code")
	if !errors.Is(err, ErrFound) {
		t.Errorf("exit code: %v", err)
	}
	golden(t, "diff", out)
	out, err = h.run(t, "diff", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var lines []line
	if err := json.Unmarshal([]byte(out), &lines); err != nil || len(lines) != 2 || lines[0].Kernel != "-1" || lines[0].Drift != driftYes {
		t.Errorf("json: %v\n%s", err, out)
	}
}

// A node where no daemon has been, or another run directory, is no node without drift.
func TestDiffOfNothing(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"diff"}, {"diff", "--exit-code"}, {"diff", "-o", "json"}} {
		if out, err := newHost(t, "6.12").run(t, args...); err == nil || out != "" || !strings.Contains(err.Error(), "no status file in ") || !strings.Contains(err.Error(), "--run-dir") {
			t.Errorf("koordctl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func TestRestoreReturnsTheTreeByteIdentical(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.12")
	before := h.tree.Snapshot(t)
	h.work(t, plan.Plan{
		set(pod, plan.CPUShares, plan.Int(2), protocol.FeatureBatch, "batch"),
		set(pod, plan.MemoryHigh, plan.Int(1<<30), protocol.FeatureMemory, "throttling"),
		set(web, plan.CPUSetCPUs, plan.Text("0-3"), protocol.FeatureCPUSet, "share pool"),
	}, journal.Record{Target: app, Knob: plan.Env.String(), Key: "X", Want: "set", Owner: "devices", Via: journal.ViaRuntime})
	after := h.tree.Snapshot(t)
	if kerneltest.Diff(before, after) == "" {
		t.Fatal("nothing was written")
	}
	out, err := h.run(t, "restore", "--dry-run")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "restore-dry-run", out)
	if d := kerneltest.Diff(after, h.tree.Snapshot(t)); d != "" {
		t.Errorf("dry run wrote:\n%s", d)
	}
	if _, err := h.run(t, "restore", "--container", "default/web/side"); err != nil {
		t.Fatal(err)
	}
	if h.tree.Get(t, podDir, "memory.high") == "max" {
		t.Error("restore of one container touched the pod")
	}
	if out, err := h.run(t, "restore"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if d := kerneltest.Diff(before, h.tree.Snapshot(t)); d != "" {
		t.Errorf("after restore:\n%s", d)
	}
	out, err = h.run(t, "diff", "--exit-code")
	if err != nil {
		t.Errorf("after restore: %v\n%s", err, out)
	}
	out, err = h.run(t, "restore", "--pod", "nobody/there")
	if !errors.Is(err, errNoSubject) {
		t.Errorf("unknown pod: %v\n%s", err, out)
	}
}

// A run directory where nobody has been is no good news, and stays as it is: whoever gives another one by mistake must not have it closed to
// others.
func TestRestoreOfAnotherDirectory(t *testing.T) {
	t.Parallel()
	h := colocated(t, "6.12")
	for _, args := range [][]string{{"restore"}, {"restore", "--dry-run"}} {
		run := filepath.Join(h.dir, "run")
		if err := os.Chmod(run, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{"/run", "/nowhere"} {
			out, err := h.run(t, append(args, "--run-dir", dir)...)
			if err == nil || !strings.Contains(err.Error(), "no ledger") || out != "" {
				t.Errorf("%v in %s: %v\n%s", args, dir, err, out)
			}
		}
		if info, err := os.Stat(run); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%v: %v, %v", args, info.Mode(), err)
		}
		if left, err := filepath.Glob(h.dir + "/run/*.lock"); err != nil || len(left) > 0 {
			t.Errorf("%v: it left %v, %v", args, left, err)
		}
		if _, err := os.Stat(h.dir + "/nowhere"); err == nil {
			t.Errorf("%v made the directory", args)
		}
	}
	// Where it cannot be looked for, that is no word about the node.
	long := "/" + strings.Repeat("x", 300)
	if _, err := h.run(t, "restore", "--dry-run", "--run-dir", long); err == nil || strings.Contains(err.Error(), "nothing to restore") {
		t.Errorf("a name that no directory has: %v", err)
	}
}

// Compaction drops most of a ledger; what would be restored must not change by it.
func TestCompactionDoesNotChangeARestore(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.12")
	// koordctl's restore in the middle takes the present time, so the plugin does too.
	h.now = time.Now
	failed := func(k plan.Knob, target plan.Target) journal.Record {
		return journal.Record{Target: target, Knob: k.String(), Boot: kerneltest.BootID, Via: journal.ViaDirect, Err: "EINVAL", Want: "1"}
	}
	runtime := journal.Record{Target: app, Knob: plan.CPUQuota.String(), Base: "300000", Want: "100000", Via: journal.ViaRuntime}
	for i := range 20 {
		p := plan.Plan{
			set(pod, plan.CPUShares, plan.Int(2+i*100), protocol.FeatureBatch, "batch"),
			set(pod, plan.CPUQuota, plan.Int(100000+i*1000), protocol.FeatureBatch, "batch"),
			set(app, plan.CPUQuota, plan.Int(100000), protocol.FeatureBatch, "batch"),
		}
		if i > 10 {
			p = append(p, set(web, plan.CPUSetCPUs, plan.Text("0-3"), protocol.FeatureCPUSet, "pool"))
		}
		h.work(t, p, runtime, failed(plan.MemoryHigh, pod))
		if i == 5 {
			if _, err := h.run(t, "restore", "--pod", "default/web"); err != nil {
				t.Fatal(err)
			}
		}
	}
	before, err := h.run(t, "restore", "--dry-run", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Open(h.runDir(), "nri", ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	size := l.Stats().Bytes
	if err := l.Compact(); err != nil {
		t.Fatal(err)
	}
	if l.Stats().Bytes > size/2 {
		t.Errorf("%d of %d bytes are left", l.Stats().Bytes, size)
	}
	after, err := h.run(t, "restore", "--dry-run", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	sorted := func(s string) []step {
		var steps []step
		if err := json.Unmarshal([]byte(s), &steps); err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(steps, func(a, b step) int { return strings.Compare(a.Target+a.Knob, b.Target+b.Knob) })
		return steps
	}
	if d := cmp.Diff(sorted(before), sorted(after)); d != "" || strings.Count(after, `"write"`) < 4 {
		t.Errorf("(-before +after compaction):\n%s\n%s", d, after)
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.12")
	for _, args := range [][]string{{"diff", "-o", "xml"}, {"restore", "--pod", "a/b", "--container", "c"}, {"explain"}, {"features"}} {
		if out, err := h.run(t, args...); err == nil {
			t.Errorf("%v: no error\n%s", args, out)
		}
	}
}
