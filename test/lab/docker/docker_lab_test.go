// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package docker_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/docker"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// TestDockerHostDaemon starts a daemon, runs a container, crashes the daemon under it and leaves nothing.
func TestDockerHostDaemon(t *testing.T) {
	d, err := docker.Start(t.Context(), docker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	run := func(args ...string) string {
		t.Helper()
		out, err := d.Docker(t.Context(), d.Socket, nil, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if v := run("version", "--format", "{{.Server.Version}}"); !strings.HasPrefix(v, "2") {
		t.Errorf("server version %q", v)
	}
	id := run("run", "--detach", "--network", "none", "--cpu-shares", "77", parts.ImageRef)
	tree, err := cgroups.Detect()
	if err != nil {
		t.Fatal(err)
	}
	dir, file, want := filepath.Join(tree.Controllers["cpu"], d.Cgroup, "docker", id), "cpu.shares", "77"
	if tree.V2() {
		dir, file, want = filepath.Join(tree.Unified, d.Cgroup, "docker", id), "cpu.weight", "3"
	}
	if got, err := cgroups.Read(dir, file); err != nil || got != want {
		t.Errorf("%s is %q, %v; want %s", file, got, err, want)
	}
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	if len(cgroups.Pids(dir)) == 0 {
		t.Error("the container died with the daemon")
	}
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := run("inspect", "--format", "{{.State.Running}}", id); out != "true" {
		t.Errorf("running after the restart: %s", out)
	}
	folder := d.Dir
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", folder, err)
	}
	for _, m := range tree.Mounts() {
		if _, err := os.Stat(filepath.Join(m, "koordrt-"+filepath.Base(folder))); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a cgroup is left in %s: %v", m, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), folder) {
		t.Error("mounts are left")
	}
}
