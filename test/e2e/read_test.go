// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// resctrl is where the kernel's resctrl filesystem is mounted.
const resctrl = "/sys/fs/resctrl"

// controller is the v1 hierarchy of a file.
func (r *rig) controller(file string) string {
	if r.tree.V2() {
		return ""
	}
	c, _, _ := strings.Cut(file, ".")
	return c
}

// read is the present value behind a wanted line, straight from the kernel: nothing of ours is asked.
func (r *rig) read(pods map[string]*kubelet.Running, w scenario.Want) (string, error) {
	if w.Group != "" {
		data, err := os.ReadFile(filepath.Join(resctrl, w.Group, "schemata"))
		if err != nil {
			return "", fmt.Errorf("read %s: %w", w, err)
		}
		return scenario.SchemataLine(string(data), w.File)
	}
	if strings.HasPrefix(w.File, "@") {
		return r.attribute(pods[w.Pod], w)
	}
	data, err := os.ReadFile(filepath.Join(r.dirOf(pods, w), w.File))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", w, err)
	}
	return strings.TrimSpace(string(data)), nil
}

// dirOf is the directory of a wanted line's cgroup file.
func (r *rig) dirOf(pods map[string]*kubelet.Running, w scenario.Want) string {
	ctrl := r.controller(w.File)
	switch {
	case w.Pod == "":
		return r.kubepods(ctrl)
	case w.Container == "":
		return r.kube.PodDir(pods[w.Pod], ctrl)
	}
	return r.kube.ContainerDir(pods[w.Pod], w.Container, ctrl)
}

// kubepods is the directory of all pods.
func (r *rig) kubepods(ctrl string) string {
	base := r.tree.Unified
	if !r.tree.V2() {
		base = r.tree.Controllers[ctrl]
	}
	if r.driver == kubelet.Systemd {
		return filepath.Join(base, r.root(), r.slice()+"-kubepods.slice")
	}
	return filepath.Join(base, r.root(), "kubepods")
}

// pid of a container's init process.
func (r *rig) pid(run *kubelet.Running, container string) (int, error) {
	_, info, err := r.host.CRI().ContainerStatus(r.t.Context(), run.Containers[container])
	if err != nil {
		return 0, err
	}
	return int(info.Pid), nil
}

func (r *rig) attribute(run *kubelet.Running, w scenario.Want) (string, error) {
	pid, err := r.pid(run, w.Container)
	if err != nil {
		return "", err
	}
	kind, name, _ := strings.Cut(w.File, " ")
	switch kind {
	case "@oom", "@sched":
		return processAttribute(pid, kind)
	case "@resctrl":
		return resctrlGroup(pid)
	case "@env":
		return environ(pid, name)
	case "@device":
		var st unix.Stat_t
		err := unix.Stat(fmt.Sprintf("/proc/%d/root%s", pid, name), &st)
		if err == unix.ENOENT {
			return "none", nil
		}
		if err != nil {
			return "", fmt.Errorf("look at device %s: %w", name, err)
		}
		return fmt.Sprintf("c %d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)), nil
	case "@access":
		return r.access(run.Containers[w.Container], name)
	}
	return "", fmt.Errorf("attribute %q is unknown", w.File)
}

// processAttribute is a process's score for the OOM killer or its scheduling policy.
func processAttribute(pid int, kind string) (string, error) {
	if kind == "@oom" {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		return strings.TrimSpace(string(data)), err
	}
	attr, err := unix.SchedGetAttr(pid, 0)
	if err != nil {
		return "", fmt.Errorf("read scheduling policy: %w", err)
	}
	return strconv.Itoa(int(attr.Policy)), nil
}

// access opens a node of the number from inside the container. The device cgroup (on v2 its BPF program) refuses with EPERM before
// any driver is asked; where it allows, there is no driver in the lab: ENXIO. The node is made here, so that a container which was
// given none is asked the same.
func (r *rig) access(container, number string) (string, error) {
	major, minor, _ := strings.Cut(number, ":")
	node := "/dev/lab-access-" + major + "-" + minor
	got, err := r.host.CRI().ExecSync(r.t.Context(), container, "sh", "-c",
		"rm -f "+node+"; mknod "+node+" c "+major+" "+minor+" || exit 99; cat "+node+" >/dev/null; code=$?; rm "+node+"; exit $code")
	if err != nil {
		return "", err
	}
	switch {
	case got.Code == 0, got.Code == 1 && strings.Contains(got.Stderr, "No such device"):
		return "allowed", nil
	case got.Code == 1 && strings.Contains(got.Stderr, "Operation not permitted"):
		return "refused", nil
	}
	return "", fmt.Errorf("open device %s in container %s: exit code %d: %s", number, container, got.Code, got.Stderr)
}

// resctrlGroup searches every group's tasks file.
func resctrlGroup(pid int) (string, error) {
	files, err := filepath.Glob(resctrl + "/*/tasks")
	if err != nil {
		return "", err
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return "", fmt.Errorf("read resctrl group: %w", err)
		}
		if slices.Contains(strings.Fields(string(data)), strconv.Itoa(pid)) {
			return filepath.Base(filepath.Dir(f)), nil
		}
	}
	return "", nil
}

func environ(pid int, name string) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return "", fmt.Errorf("read environment: %w", err)
	}
	for kv := range strings.SplitSeq(string(data), "\x00") {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v, nil
		}
	}
	return "", nil
}
