// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	restGoal   = 20 << 20 // bytes
	fullGoal   = 32 << 20 // bytes
	binaryGoal = 20e6     // bytes: 20 MB
)

// unwanted modules: the API machinery of Kubernetes.
func unwanted() []string {
	return []string{"k8s.io/client-go", "k8s.io/apimachinery", "k8s.io/kubernetes"}
}

// resident is a process's memory in KiB, from /proc/PID/status.
type resident struct{ rss, anon, file, shmem, peak int64 }

func (m resident) String() string {
	mib := func(kib int64) string { return fmt.Sprintf("%.1f MiB", float64(kib)/1024) }
	return fmt.Sprintf("%s (anon %s, file %s, shmem %s; peak %s)", mib(m.rss), mib(m.anon), mib(m.file), mib(m.shmem), mib(m.peak))
}

func residentOf(pid int) (resident, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return resident{}, fmt.Errorf("read memory of %d: %w", pid, err)
	}
	var m resident
	fields := map[string]*int64{"VmRSS:": &m.rss, "RssAnon:": &m.anon, "RssFile:": &m.file, "RssShmem:": &m.shmem, "VmHWM:": &m.peak}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 3 || fields[f[0]] == nil {
			continue
		}
		if *fields[f[0]], err = strconv.ParseInt(f[1], 10, 64); err != nil {
			return resident{}, fmt.Errorf("read memory of %d: %w", pid, err)
		}
	}
	return m, nil
}

// memory reads the resident set without containers and on a full node, and looks at the binary.
func (b *bench) memory(ctx context.Context, r *report) error {
	empty, err := newRig(ctx)
	if err != nil {
		return err
	}
	rest, err := b.residentAfter(ctx, r, empty, "at rest")
	if err = errors.Join(err, empty.close()); err != nil {
		return err
	}
	r.judge("memory at rest", "≤ 20 MiB", rest.String(), rest.rss<<10 <= restGoal)
	f, err := b.bigFleet(ctx)
	if err != nil {
		return err
	}
	full, err := b.residentAfter(ctx, r, f.rig, "full")
	if err != nil {
		return err
	}
	r.judge(fmt.Sprintf("memory with %d containers", b.o.fleet), "≤ 32 MiB", full.String(), full.rss<<10 <= fullGoal)
	return b.binary(ctx, r, program{name: "koord-nri", source: "./nri-plugin", unwanted: unwanted(), kind: "client-go and apimachinery"})
}

// residentAfter connects koord-nri, waits until it is idle and then the rest, and reads its memory.
func (b *bench) residentAfter(ctx context.Context, r *report, rig *rig, when string) (resident, error) {
	p, err := b.startPlugin(ctx, rig, "ours", plainIndex)
	if err != nil {
		return resident{}, err
	}
	if err := errors.Join(b.settle(ctx, p), wait(ctx, b.o.rest)); err != nil {
		return resident{}, errors.Join(err, p.stop())
	}
	m, err := residentOf(p.cmd.Process.Pid)
	if rollup, e := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.cmd.Process.Pid)); e == nil {
		r.note("smaps_rollup %s:\n%s", when, rollup)
	}
	return m, errors.Join(err, p.stop())
}

// program is a binary of ours with what must not be in it.
type program struct {
	name, source string
	unwanted     []string // modules or packages
	kind         string   // what they are
}

// binary reads size and contents of a program.
func (b *bench) binary(ctx context.Context, r *report, p program) error {
	path := filepath.Join(b.o.bin, p.name)
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read binary: %w", err)
	}
	r.judge("stripped binary", "≤ 20 MB", fmt.Sprintf("%.1f MB", float64(st.Size())/1e6), float64(st.Size()) <= binaryGoal)
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read binary: %w", err)
	}
	var found []string
	for _, d := range info.Deps {
		r.note("in the binary: %s %s", d.Path, d.Version)
		found = append(found, among(d.Path, p.unwanted)...)
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-deps", p.source).Output()
	if err != nil {
		return fmt.Errorf("list packages of %s: %w", p.name, err)
	}
	packages := strings.Fields(string(out))
	for _, name := range packages {
		found = append(found, among(name, p.unwanted)...)
	}
	r.note("packages in the binary: %d", len(packages))
	r.judge(p.kind+" in it", "none", fmt.Sprintf("%d found of %d packages %v", len(found), len(packages), found), len(found) == 0)
	return nil
}

// among is path, if it belongs to an unwanted module.
func among(path string, unwanted []string) []string {
	for _, u := range unwanted {
		if path == u || strings.HasPrefix(path, u+"/") {
			return []string{path}
		}
	}
	return nil
}
