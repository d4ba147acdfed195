// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package critest_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/critest"
	"github.com/koord-rt/koord-rt/test/lab/docker"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// dockered is dockerd with cri-dockerd before it, which serves CRI on a socket.
func dockered(t *testing.T) (d *docker.Daemon, cache *parts.Cache, socket string) {
	t.Helper()
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	if d, err = docker.Start(t.Context(), docker.Options{Cache: cache}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	runc, err := cache.File(t.Context(), parts.Runc, "runc")
	if err != nil {
		t.Fatal(err)
	}
	wrapper, err := critest.WriteOOMRunc(d.Dir, runc)
	if err != nil {
		t.Fatal(err)
	}
	setRuntime(t, d, wrapper)
	dir := filepath.Join(d.Dir, "cri-dockerd")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(d.Dir, "cri.sock")
	c, err := critest.StartCriDockerd(t.Context(), critest.CriDockerdOptions{Cache: cache, Endpoint: socket, Docker: d.Socket, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, cache, socket
}

// cri-dockerd serves CRI from Debian's dockerd, which does not know CRI.
func TestCriDockerdHost(t *testing.T) {
	d, cache, socket := dockered(t)
	crictlRunsPod(t, cache, socket, "/"+d.Cgroup)
	names, err := d.Docker(t.Context(), d.Socket, nil, "ps", "--format", "{{.Names}}")
	if err != nil || !strings.HasPrefix(names, "k8s_POD_p_default_") {
		t.Errorf("the engine runs %q, %v", names, err)
	}
}

// setRuntime makes a runc the engine's default, by a reload of its configuration.
func setRuntime(t *testing.T, d *docker.Daemon, runc string) {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"default-runtime": "lab", "runtimes": map[string]any{"lab": map[string]string{"path": runc}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Dir, "config/daemon.json"), config, 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(d.Dir, "dockerd.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(3 * time.Minute); ; {
		got, err := d.Docker(t.Context(), d.Socket, nil, "info", "--format", "{{.DefaultRuntime}}")
		if err == nil && got == "lab" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("default runtime %q, %v", got, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
