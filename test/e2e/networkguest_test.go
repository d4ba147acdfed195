// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// TestGuestNetwork is the same on cgroup v2 in a VM, whose own network is divided: nobody has to pretend that this is process 1's, and
// sysfs has the link. Pods are told apart by their addresses there too: a packet has lost its cgroup where it comes to the uplink (ADR 19).
// What is judged are classes, rates and the kernel's counters, and no times.
func TestGuestNetwork(t *testing.T) {
	if !cgroupV2() {
		t.Fatal("this test is for cgroup v2, on v1 the host has it")
	}
	newUplink(t).networkQoS()
}

// equip gives a guest, which has busybox and no C library, what makes and shows a network: ip and tc, and the library for them and for the
// CNI plugins, which containerd starts by themselves.
func equip(t *testing.T, cache *parts.Cache) {
	t.Helper()
	dir, err := cache.Get(t.Context(), parts.IPRoute2)
	if err != nil {
		t.Fatal(err)
	}
	for place, what := range map[string]string{"/lib64/ld-linux-x86-64.so.2": filepath.Join(dir, parts.Loader), "/lib/x86_64-linux-gnu": dir} {
		if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(what, place); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH")) // busybox has an ip and a tc, too
}
