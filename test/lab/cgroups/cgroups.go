// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package cgroups finds, makes, reads and removes control groups for the test lab.
//
// Input: the machine's mount table, the files of its control groups, and /proc/stat for how idle its CPUs are.
// Output: directories below the mount points, what was read, and how much CPU time a quota gives.
// Written for the lab on purpose, apart from the project's kernel packages: tests
// must not judge those by themselves. It must not import any package under test.
package cgroups

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Tree is the machine's cgroup layout.
type Tree struct {
	Unified     string            // mount point of cgroup2 if it is the only version, else ""
	Controllers map[string]string // cgroup v1: controller or "name=systemd" -> mount point
	Hybrid      string            // mount point of cgroup2 beside v1, else ""
}

// V2 says whether cgroup2 is the only version.
func (t Tree) V2() bool { return t.Unified != "" }

// Mounts lists the distinct mount points in which runc gives a control group a
// directory: all controllers and, in hybrid mode, the cgroup2 tree beside them.
func (t Tree) Mounts() []string {
	var out []string
	if t.V2() {
		return append(out, t.Unified)
	}
	for _, m := range t.Controllers {
		if !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	if t.Hybrid != "" {
		out = append(out, t.Hybrid)
	}
	slices.Sort(out)
	return out
}

// Detect reads /proc/self/mountinfo.
func Detect() (Tree, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Tree{}, fmt.Errorf("read mounts: %w", err)
	}
	defer f.Close()
	t := Tree{Controllers: map[string]string{}}
	s := bufio.NewScanner(f)
	for s.Scan() {
		// id parent major:minor root MOUNTPOINT options [optional] - TYPE source SUPEROPTIONS
		left, right, ok := strings.Cut(s.Text(), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 {
			continue
		}
		switch r[0] {
		case "cgroup2":
			if t.Hybrid == "" {
				t.Hybrid = l[4]
			}
		case "cgroup":
			for _, o := range strings.Split(r[2], ",") {
				if _, have := t.Controllers[o]; !have && o != "rw" && o != "ro" {
					t.Controllers[o] = l[4]
				}
			}
		}
	}
	if err := s.Err(); err != nil {
		return Tree{}, fmt.Errorf("read mounts: %w", err)
	}
	if len(t.Controllers) == 0 {
		t.Unified, t.Hybrid = t.Hybrid, ""
	}
	if t.Unified == "" && len(t.Controllers) == 0 {
		return Tree{}, errors.New("read mounts: no cgroup file system is mounted")
	}
	return t, nil
}

// Remove kills every process below dir and removes dir with its children, waiting
// until the processes are gone or ctx ends. An absent dir is no error. A root of a
// hierarchy, and a dir that holds this process, are refused: nothing is killed then.
func Remove(ctx context.Context, dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := removable(dir); err != nil {
		return err
	}
	for {
		err := removeOnce(dir)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove cgroup %s: %w: %w", dir, ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// RemoveAll removes the group of this name below the root of every hierarchy, as Remove does.
func RemoveAll(ctx context.Context, name string) error {
	tree, err := Detect()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range tree.Mounts() {
		errs = append(errs, Remove(ctx, filepath.Join(m, name)))
	}
	return errors.Join(errs...)
}

func removable(dir string) error {
	if _, err := os.Stat(filepath.Join(filepath.Dir(filepath.Clean(dir)), "cgroup.procs")); err != nil {
		return fmt.Errorf("remove cgroup %s: its parent is not a cgroup", dir)
	}
	dirs, err := Dirs(dir)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if slices.Contains(Pids(d), os.Getpid()) {
			return fmt.Errorf("remove cgroup %s: this process is in it", d)
		}
	}
	return nil
}

func removeOnce(dir string) error {
	dirs, err := Dirs(dir)
	if err != nil {
		return err
	}
	slices.Reverse(dirs) // children first
	var last error
	for _, d := range dirs {
		for _, pid := range Pids(d) {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill %d: %w", pid, err)
			}
		}
		if err := unix.Rmdir(d); err != nil && !errors.Is(err, unix.ENOENT) {
			last = fmt.Errorf("rmdir %s: %w", d, err)
		}
	}
	return last
}

// Dirs lists dir and the control groups below it, parents first; none if dir is absent.
func Dirs(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil // removed while we look
		}
		if err != nil {
			return err
		}
		if d.IsDir() {
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("walk cgroup %s: %w", dir, err)
	}
	return out, nil
}

// Pids lists the processes of one control group; none if it is absent or cannot list
// them (a threaded cgroup).
func Pids(dir string) []int {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var out []int
	for _, f := range strings.Fields(string(data)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	return out
}

// Write writes one control file and says path and value in the error.
func Write(dir, file, value string) error {
	path := filepath.Join(dir, file)
	f, err := os.OpenFile(path, os.O_WRONLY, 0) // never create: a missing file is an error
	if err != nil {
		return fmt.Errorf("write %q to %s: %w", value, path, err)
	}
	_, err = f.WriteString(value)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %q to %s: %w", value, path, err)
	}
	return nil
}

// Read reads one control file without surrounding space.
func Read(dir, file string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return "", fmt.Errorf("read cgroup file: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}
