// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package sys reads what a node has: CPUs, caches and NUMA nodes, block devices, RDMA and NVIDIA device nodes, and the
// names in the CDI registry.
//
// Inputs are the roots of sysfs, procfs, /dev and the CDI directories; outputs are model values. It writes nothing. It
// imports model, kernel/root, kernel/scan, golang.org/x/sys, the CDI library and the standard library only.
package sys

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/topo"
)

// FS is a sysfs: its mount point, "/sys" outside of tests.
type FS string

// Path joins elements below the root.
func (fs FS) Path(elem ...string) string {
	return filepath.Join(append([]string{string(fs)}, elem...)...)
}

// intAt reads a file that holds one decimal number.
func (fs FS) intAt(elem ...string) (int, error) {
	path := fs.Path(elem...)
	s, err := root.Read(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", path, err)
	}
	return n, nil
}

// listAt reads a file that holds a list of ids ("0-3,8").
func (fs FS) listAt(elem ...string) (topo.CPUSet, error) {
	path := fs.Path(elem...)
	s, err := root.Read(path)
	if err != nil {
		return topo.CPUSet{}, err
	}
	set, err := topo.ParseCPUSet(s)
	if err != nil {
		return topo.CPUSet{}, fmt.Errorf("parse %s: %w", path, err)
	}
	return set, nil
}

// names lists a directory; one that does not exist is empty, as on a machine without the hardware.
func (fs FS) names(elem ...string) ([]string, error) {
	dir := fs.Path(elem...)
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// parseDev parses "8:16", the content of every dev file (Documentation/ABI/testing/sysfs-dev).
func parseDev(s string) (major, minor int64, err error) {
	left, right, ok := strings.Cut(strings.TrimSpace(s), ":")
	if ok {
		var a, b uint64
		if a, err = strconv.ParseUint(left, 10, 32); err == nil {
			if b, err = strconv.ParseUint(right, 10, 32); err == nil {
				return int64(a), int64(b), nil
			}
		}
	}
	return 0, 0, fmt.Errorf("%.40q is no device number", s)
}

func (fs FS) devAt(elem ...string) (major, minor int64, err error) {
	path := fs.Path(elem...)
	s, err := root.Read(path)
	if err != nil {
		return 0, 0, err
	}
	if major, minor, err = parseDev(s); err != nil {
		return 0, 0, fmt.Errorf("parse %s: %w", path, err)
	}
	return major, minor, nil
}
