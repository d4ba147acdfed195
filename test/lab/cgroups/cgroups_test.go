// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cgroups

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestDetect(t *testing.T) {
	t.Parallel()
	tree, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range tree.Mounts() {
		if _, err := os.Stat(filepath.Join(m, "cgroup.procs")); err != nil {
			t.Errorf("mount %s: %v", m, err)
		}
	}
}

func TestRemoveRefuses(t *testing.T) {
	t.Parallel()
	tree, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	if err := Remove(t.Context(), tree.Mounts()[0]); err == nil {
		t.Error("the root of a hierarchy was not refused")
	}
	fake := t.TempDir()
	child := filepath.Join(fake, "child")
	if err := os.Mkdir(child, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(fake, "cgroup.procs"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// This process's own pid must never be signalled.
	own := []byte(strconv.Itoa(os.Getpid()) + "\n")
	if err := os.WriteFile(filepath.Join(child, "cgroup.procs"), own, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Remove(t.Context(), child); err == nil {
		t.Error("the cgroup of this process was not refused")
	}
}
