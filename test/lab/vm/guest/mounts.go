// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

// mountAll makes each target folder where it is missing and mounts on it. What is mounted there already stays.
func mountAll(mounts []mount) error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return fmt.Errorf("create mount point: %w", err)
		}
		err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data)
		if err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s on %s: %w", m.fstype, m.target, err)
		}
	}
	return nil
}

// mountResctrl mounts the kernel's resctrl filesystem.
func mountResctrl() error {
	return mountAll([]mount{{"resctrl", "/sys/fs/resctrl", "resctrl", 0, ""}})
}

// mountCgroup2 mounts the unified hierarchy and hands every controller to the first level.
func mountCgroup2() error {
	if err := mountAll([]mount{{"cgroup2", cgroupRoot, "cgroup2", 0, ""}}); err != nil {
		return err
	}
	return enableControllers()
}

func enableControllers() error {
	list, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read cgroup controllers: %w", err)
	}
	for _, name := range strings.Fields(string(list)) {
		err := os.WriteFile(filepath.Join(cgroupRoot, "cgroup.subtree_control"), []byte("+"+name), 0)
		if err != nil {
			return fmt.Errorf("enable cgroup controller %s: %w", name, err)
		}
	}
	return nil
}

// mountCgroup1 mounts one hierarchy per controller or usual pair, the way distributions with cgroup v1 do.
func mountCgroup1() error {
	mounts := []mount{{"tmpfs", cgroupRoot, "tmpfs", 0, "mode=755"}}
	for _, name := range []string{
		"cpuset", "cpu,cpuacct", "memory", "blkio", "pids", "devices", "freezer", "hugetlb", "perf_event", "net_cls,net_prio",
	} {
		mounts = append(mounts, mount{"cgroup", filepath.Join(cgroupRoot, name), "cgroup", 0, name})
	}
	mounts = append(mounts, mount{"cgroup", filepath.Join(cgroupRoot, "systemd"), "cgroup", 0, "none,name=systemd"})
	if err := mountAll(mounts); err != nil {
		return err
	}
	for _, pair := range []string{"cpu,cpuacct", "net_cls,net_prio"} {
		for _, name := range strings.Split(pair, ",") {
			if err := os.Symlink(pair, filepath.Join(cgroupRoot, name)); err != nil {
				return fmt.Errorf("link cgroup controller: %w", err)
			}
		}
	}
	return nil
}

// findDisk returns the device node of the virtio disk with that serial number.
func findDisk(serial string) (string, error) {
	files, err := filepath.Glob("/sys/block/vd*/serial")
	if err != nil {
		return "", fmt.Errorf("list disks: %w", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read disk serial: %w", err)
		}
		if strings.TrimSpace(string(data)) == serial {
			return "/dev/" + filepath.Base(filepath.Dir(file)), nil
		}
	}
	return "", fmt.Errorf("find disk %s: %w", serial, fs.ErrNotExist)
}
