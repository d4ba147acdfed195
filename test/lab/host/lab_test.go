// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package host_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

const twoContainers = `
name: web
uid: %s
labels: {app: web}
containers:
- name: main
  resources:
    requests: {cpu: 250m, memory: 32Mi}
    limits: {cpu: 500m, memory: 64Mi}
- name: side
  resources:
    requests: {cpu: 100m, memory: 16Mi}
    limits: {cpu: 200m, memory: 48Mi}
`

// lane is one containerd with a kubelet in a cgroup root of its own.
type lane struct {
	*host.Host
	k    *kubelet.Kubelet
	root string
	dir  string
}

func start(t *testing.T, o host.Options) *lane {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a cold cache builds
	defer cancel()
	h, err := host.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	l := &lane{Host: h, root: h.Cgroup, dir: h.Dir}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	l.k, err = kubelet.New(ctx, kubelet.Options{CRI: h.CRI(), LogDir: h.Logs, Root: l.root})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lane) runPod(t *testing.T, text string) *kubelet.Running {
	t.Helper()
	p, err := kubelet.ParsePod([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.k.StartPod(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// want compares one control file per cgroup version: v1 and v2 file = value.
func (l *lane) want(t *testing.T, dirOf func(controller string) string, controller, v1, v2 string) {
	t.Helper()
	tree, err := cgroups.Detect()
	if err != nil {
		t.Fatal(err)
	}
	file, value, _ := strings.Cut(map[bool]string{false: v1, true: v2}[tree.V2()], "=")
	got, err := cgroups.Read(dirOf(controller), file)
	if err != nil {
		t.Error(err)
	} else if got != value {
		t.Errorf("%s/%s is %s, want %s", dirOf(controller), file, got, value)
	}
}

func (l *lane) container(r *kubelet.Running, name string) func(string) string {
	return func(controller string) string { return l.k.ContainerDir(r, name, controller) }
}

func (l *lane) pod(r *kubelet.Running) func(string) string {
	return func(controller string) string { return l.k.PodDir(r, controller) }
}

func TestEveryVersion(t *testing.T) {
	for _, version := range []string{parts.Containerd24, parts.Containerd20, parts.Containerd17, parts.Containerd16} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := start(t, host.Options{Version: version})
			r := l.runPod(t, fmt.Sprintf(twoContainers, "uid-"+l.root))
			checkValues(t, l, r)
			checkCrash(t, l, r)
			checkResize(t, l, r)
			checkNothingLeft(t, l)
		})
	}
}

func checkValues(t *testing.T, l *lane, r *kubelet.Running) {
	t.Helper()
	// weights: runc's own conversion for containers, kubelet's linear one for pods
	l.want(t, l.container(r, "main"), "memory", "memory.limit_in_bytes=67108864", "memory.max=67108864")
	l.want(t, l.container(r, "main"), "cpu", "cpu.cfs_quota_us=50000", "cpu.max=50000 100000")
	l.want(t, l.container(r, "side"), "memory", "memory.limit_in_bytes=50331648", "memory.max=50331648")
	l.want(t, l.container(r, "side"), "cpu", "cpu.cfs_quota_us=20000", "cpu.max=20000 100000")
	if tree, err := cgroups.Detect(); err != nil || !tree.V2() {
		l.want(t, l.container(r, "main"), "cpu", "cpu.shares=256", "")
		l.want(t, l.container(r, "side"), "cpu", "cpu.shares=102", "")
	}
	l.want(t, l.pod(r), "cpu", "cpu.shares=358", "cpu.weight=14")
	l.want(t, l.pod(r), "memory", "memory.limit_in_bytes=117440512", "memory.max=117440512")
	out, err := l.CRI().ExecSync(t.Context(), r.Containers["main"], "cat", "/proc/self/cgroup")
	if err != nil || !strings.Contains(out.Stdout, r.Config.Linux.CgroupParent+"/"+r.Containers["main"]) {
		t.Errorf("cgroup seen from inside: %q, %v; want below %s", out.Stdout, err, r.Config.Linux.CgroupParent)
	}
}

func checkCrash(t *testing.T, l *lane, r *kubelet.Running) {
	t.Helper()
	_, info, err := l.CRI().ContainerStatus(t.Context(), r.Containers["main"])
	if err != nil || info.Pid == 0 || len(info.RuntimeSpec) == 0 {
		t.Fatalf("status before the crash: pid %d, spec of %d bytes, %v", info.Pid, len(info.RuntimeSpec), err)
	}
	old := l.Pid()
	if err := l.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.CRI().Containers(t.Context()); err == nil {
		t.Error("a killed containerd answers")
	}
	if err := unix.Kill(info.Pid, 0); err != nil {
		t.Errorf("the container died with containerd: %v", err)
	}
	if err := l.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.Pid() == old || l.Pid() == 0 {
		t.Errorf("pid of containerd is %d after %d", l.Pid(), old)
	}
	list, err := l.CRI().Containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	running := 0
	for _, c := range list {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && (c.Id == r.Containers["main"] || c.Id == r.Containers["side"]) {
			running++
		}
	}
	if running != 2 {
		t.Errorf("%d of 2 containers run after the restart: %v", running, list)
	}
}

func checkResize(t *testing.T, l *lane, r *kubelet.Running) {
	t.Helper()
	set := func(cpu, memory string) kubelet.Resources {
		q := map[string]kubelet.Quantity{"cpu": kubelet.Quantity(cpu), "memory": kubelet.Quantity(memory)}
		return kubelet.Resources{Limits: q, Requests: map[string]kubelet.Quantity{"cpu": "200m", "memory": "16Mi"}}
	}
	if err := l.k.ResizeContainer(t.Context(), r, "main", set("1", "128Mi")); err != nil {
		t.Fatal(err)
	}
	l.want(t, l.container(r, "main"), "memory", "memory.limit_in_bytes=134217728", "memory.max=134217728")
	l.want(t, l.container(r, "main"), "cpu", "cpu.cfs_quota_us=100000", "cpu.max=100000 100000")
	l.want(t, l.pod(r), "memory", "memory.limit_in_bytes=184549376", "memory.max=184549376")
	l.want(t, l.pod(r), "cpu", "cpu.cfs_quota_us=120000", "cpu.max=120000 100000")
	if err := l.k.ResizeContainer(t.Context(), r, "main", set("300m", "40Mi")); err != nil {
		t.Fatal(err)
	}
	l.want(t, l.container(r, "main"), "cpu", "cpu.cfs_quota_us=30000", "cpu.max=30000 100000")
	l.want(t, l.pod(r), "memory", "memory.limit_in_bytes=92274688", "memory.max=92274688")
	l.want(t, l.pod(r), "cpu", "cpu.cfs_quota_us=50000", "cpu.max=50000 100000")
	same := map[string]kubelet.Quantity{"cpu": "1", "memory": "64Mi"}
	change := map[string]kubelet.Resources{"main": {Limits: same}, "side": {Limits: same}}
	if err := l.k.ResizePod(t.Context(), r, change); err == nil {
		t.Error("a resize that changes the QoS class was accepted")
	}
}

// checkNothingLeft closes the lane, its pods running, and looks for leftovers.
func checkNothingLeft(t *testing.T, l *lane) {
	t.Helper()
	tree, err := cgroups.Detect()
	if err != nil {
		t.Fatal(err)
	}
	// The checks below must see the lab while it is there.
	if len(processesOf(t, l.dir)) < 2 || !mounted(t, l.dir) || len(groupsOf(tree, l.root)) == 0 {
		t.Errorf("the checks do not see the running lab: processes %v, mounted %t, cgroups %v",
			processesOf(t, l.dir), mounted(t, l.dir), groupsOf(tree, l.root))
	}
	if err := l.k.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(l.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", l.dir, err)
	}
	for _, p := range processesOf(t, l.dir) {
		t.Errorf("process is left: %s", p)
	}
	if mounted(t, l.dir) {
		t.Errorf("mounts of %s are left", l.dir)
	}
	for _, g := range groupsOf(tree, l.root) {
		t.Errorf("cgroup is left: %s", g)
	}
}

func mounted(t *testing.T, dir string) bool {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(mounts), dir)
}

func groupsOf(tree cgroups.Tree, root string) []string {
	var out []string
	for _, m := range tree.Mounts() {
		if _, err := os.Stat(filepath.Join(m, root)); !errors.Is(err, fs.ErrNotExist) {
			out = append(out, filepath.Join(m, root))
		}
	}
	return out
}

// processesOf lists command lines that name the folder; zombies have none.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(line), dir) {
			out = append(out, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return out
}

// A lab whose owner is dead is removed by the next Start, with a live one left alone.
func TestRemoveStale(t *testing.T) {
	l := start(t, host.Options{})
	r := l.runPod(t, fmt.Sprintf(twoContainers, "uid-"+l.root))
	_, info, err := l.CRI().ContainerStatus(t.Context(), r.Containers["main"])
	if err != nil {
		t.Fatal(err)
	}
	if err := host.RemoveStale(t.Context()); err != nil {
		t.Fatal(err)
	}
	if unix.Kill(info.Pid, 0) != nil || l.CRI().WaitReady(t.Context()) != nil {
		t.Fatal("RemoveStale touched a lab whose owner lives")
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	owner := fmt.Sprintf("%d 1\n", dead.Process.Pid)
	if err := os.WriteFile(filepath.Join(l.dir, "owner"), []byte(owner), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := host.RemoveStale(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", l.dir, err)
	}
	for _, p := range processesOf(t, l.dir) {
		t.Errorf("process is left: %s", p)
	}
	tree, err := cgroups.Detect()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groupsOf(tree, l.root) {
		t.Errorf("cgroup is left: %s", g)
	}
}
