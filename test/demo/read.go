// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// place is one value: a file of a container's or a pod's cgroup, or an attribute of a container's first process.
type place struct {
	pod, container string // container is empty for the pod's cgroup
	file           string
}

// reading is what the kernel holds: place -> value as the kernel prints it.
type reading map[place]string

// sight is a file in which knobs of ours stand.
type sight struct {
	file, controller string // controller is the v1 hierarchy, empty on v2
	knobs            []plan.Knob
}

// Attributes of a process that are shown beside its cgroup's files.
const (
	fileOOM   = "oom_score_adj"
	fileSched = "scheduling policy"
)

// sights lists the files of every knob on this cgroup version; one file may hold several.
func sights(v2 bool) []sight {
	var out []sight
	for _, f := range cgroup.Table() {
		file, controller := f.V1, f.V1Controller
		if v2 {
			file, controller = f.V2, ""
		}
		switch {
		case f.Knob == plan.OOMScoreAdj:
			file = fileOOM
		case f.Knob == plan.SchedPolicy:
			file = fileSched
		case file == "":
			continue
		}
		if i := slices.IndexFunc(out, func(s sight) bool { return s.file == file }); i >= 0 {
			out[i].knobs = append(out[i].knobs, f.Knob)
			continue
		}
		out = append(out, sight{file: file, controller: controller, knobs: []plan.Knob{f.Knob}})
	}
	return out
}

// read reads everything that knobs of ours can change, straight from the kernel.
func (d *demo) read(ctx context.Context, all []*kubelet.Running) (reading, error) {
	out := reading{}
	for _, r := range all {
		name := r.Pod.Containers[0].Name
		_, info, err := d.host.CRI().ContainerStatus(ctx, r.Containers[name])
		if err != nil {
			return nil, err
		}
		for _, s := range sights(d.tree.V2()) {
			at := place{pod: r.Pod.Name, file: s.file}
			inside := at
			inside.container = name
			if s.file == fileOOM || s.file == fileSched {
				if out[inside], err = attribute(info.Pid, s.file); err != nil {
					return nil, err
				}
				continue
			}
			out.file(at, d.kube.PodDir(r, s.controller))
			out.file(inside, d.kube.ContainerDir(r, name, s.controller))
		}
	}
	return out, nil
}

// file reads one file; a file that this kernel does not have is left out.
func (r reading) file(at place, dir string) {
	if data, err := os.ReadFile(filepath.Join(dir, at.file)); err == nil {
		r[at] = strings.Join(strings.Fields(string(data)), " ")
	}
}

func attribute(pid int, name string) (string, error) {
	if name == fileOOM {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		return strings.TrimSpace(string(data)), err
	}
	attr, err := unix.SchedGetAttr(pid, 0)
	if err != nil {
		return "", fmt.Errorf("read scheduling policy: %w", err)
	}
	names := map[uint32]string{0: "SCHED_OTHER", 3: "SCHED_BATCH", 5: "SCHED_IDLE"}
	if n, ok := names[attr.Policy]; ok {
		return n, nil
	}
	return strconv.Itoa(int(attr.Policy)), nil
}

// unlimited is v1's "no limit": the largest number of whole pages.
const unlimited = 1 << 62

// human shortens bytes and spells out what the kernel writes as a huge or negative number.
func human(file, value string) string {
	n, err := strconv.ParseInt(value, 10, 64)
	quota, period, _ := strings.Cut(value, " ")
	switch {
	case value == "" && strings.HasPrefix(file, "cpuset."):
		return "inherited"
	case value == "":
		return "-"
	case file == "io.max":
		return strings.Join(slices.DeleteFunc(strings.Fields(value), func(f string) bool { return strings.HasSuffix(f, "=max") }), " ")
	case value == "max", file == "cpu.max" && quota == "max":
		return "no limit"
	case file == "cpu.max":
		return quota + " of " + period + " us"
	case err != nil:
		return value
	case n == -1 && strings.Contains(file, "quota"), n >= unlimited:
		return "no limit"
	case strings.HasPrefix(file, "memory.") && n >= 1<<20 && n%(1<<20) == 0:
		return strconv.FormatInt(n>>20, 10) + " MiB"
	case strings.HasPrefix(file, "memory.") && n >= 1<<20:
		return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB"
	case strings.HasPrefix(file, "memory.") && n >= 1<<10 && n%(1<<10) == 0:
		return strconv.FormatInt(n>>10, 10) + " KiB"
	}
	return value
}
