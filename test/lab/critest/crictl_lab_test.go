// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package critest_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/critest"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// Upstream's proxy stands between a CRI client and containerd.
//
// Not parallel: upstream's hook folder has a fixed path.
func TestUpstreamProxyHost(t *testing.T) {
	for _, version := range []string{parts.Containerd24} {
		t.Run(version, func(t *testing.T) {
			upstreamProxy(t, version)
		})
	}
}

func upstreamProxy(t *testing.T, version string) {
	t.Helper()
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Start(t.Context(), host.Options{Cache: cache, Version: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	endpoint := filepath.Join(h.Dir, "proxy", "up.sock")
	p, err := critest.StartUpstreamProxy(t.Context(), critest.UpstreamOptions{
		Cache: cache, Endpoint: endpoint, Runtime: h.Socket, Log: filepath.Join(h.Dir, "upstream.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	crictlRunsPod(t, cache, endpoint, h.Cgroup)
	pods, err := h.CRI().Pods(t.Context())
	if err != nil || len(pods) != 1 {
		t.Errorf("the runtime has pods %v, %v", pods, err)
	}
}

// crictlRunsPod runs a pod with one container below a cgroup by crictl on a socket, finds
// it there, and leaves the pod.
func crictlRunsPod(t *testing.T, cache *parts.Cache, socket, cgroup string) {
	t.Helper()
	program, err := cache.File(t.Context(), parts.Crictl, "crictl")
	if err != nil {
		t.Fatal(err)
	}
	crictl := func(args ...string) string {
		t.Helper()
		args = append([]string{"--config", os.DevNull, "--runtime-endpoint", "unix://" + socket, "--image-endpoint", "unix://" + socket}, args...)
		cmd := exec.CommandContext(t.Context(), program, args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("crictl %v: %v: %s", args[6:], err, stderr.String())
		}
		return strings.TrimSpace(stdout.String())
	}
	pod := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "default", Uid: "upstream-1"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: cgroup, SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}},
	}
	container := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"},
		Image:    &runtimeapi.ImageSpec{Image: parts.ImageRef},
		Command:  []string{"sleep", "1000"},
		Linux:    &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpuShares: 512}},
	}
	podFile, containerFile := writeJSON(t, "pod.json", pod), writeJSON(t, "container.json", container)
	podID := crictl("runp", podFile)
	id := crictl("create", "--no-pull", podID, containerFile, podFile)
	crictl("start", id)
	if out := crictl("pods", "-q", "--no-trunc"); out != podID {
		t.Errorf("crictl pods: %q, want %s", out, podID)
	}
	if out := crictl("ps", "-q", "--no-trunc", "--state", "running"); out != id {
		t.Errorf("crictl ps: %q, want %s", out, id)
	}
	if out := crictl("exec", id, "echo", "hello"); out != "hello" {
		t.Errorf("crictl exec: %q", out)
	}
	crictl("update", "--cpu-share", "256", id)
	crictl("stop", "--timeout", "0", id)
	crictl("rm", id)
}

func writeJSON(t *testing.T, name string, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
