// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kerneltest

import (
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/model/node"
)

// base is where systemd and every distribution mount cgroups.
const base = "/sys/fs/cgroup"

// Hierarchies are this machine's own: the cgroup version and the directories in which a cgroup is made to have all of its
// accounting files. Without any the test steps aside.
func Hierarchies(t testing.TB) (v node.CgroupVersion, dirs []string) {
	t.Helper()
	if _, err := OfType(base, unix.CGROUP2_SUPER_MAGIC)(); err == nil {
		return node.CgroupV2, []string{base}
	}
	for _, c := range []string{"cpu", "cpuacct", "cpuset", "memory", "blkio"} {
		// Controllers that share a hierarchy are links to one directory.
		dir, err := filepath.EvalSymlinks(base + "/" + c)
		if err == nil && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		StepAside(t, NotMounted("cgroup", "cgroup2"))
	}
	return node.CgroupV1, dirs
}

// Unified is where this machine has cgroup v2, on a hybrid node a hierarchy without controllers. Without it the VM lane has
// the test.
func Unified(t testing.TB) string {
	t.Helper()
	for _, dir := range []string{base, base + "/unified"} {
		if _, err := OfType(dir, unix.CGROUP2_SUPER_MAGIC)(); err == nil {
			return dir
		}
	}
	LeaveToVM(t, NotMounted("cgroup2"))
	return ""
}
