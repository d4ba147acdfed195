// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package docker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/test/lab/cri"
	"github.com/koord-rt/koord-rt/test/lab/critest"
	lab "github.com/koord-rt/koord-rt/test/lab/docker"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// startCriDockerd serves CRI from the daemon through the proxy on a socket.
func startCriDockerd(t *testing.T, r *lab.Daemon, proxy string) *cri.Client {
	t.Helper()
	// cri-dockerd's sandboxes have oom_score_adj -998, which this machine may not be allowed to set.
	runc, err := critest.WriteOOMRunc(r.Dir, filepath.Join(r.Bin, "usr/sbin/runc"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]any{
		"default-runtime": "lab", "runtimes": map[string]any{"lab": map[string]string{"path": runc}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.Dir, "config/daemon.json"), config, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	dir, socket := filepath.Join(r.Dir, "cri-dockerd"), filepath.Join(r.Dir, "cri.sock")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := critest.StartCriDockerd(t.Context(), critest.CriDockerdOptions{Cache: cache, Endpoint: socket, Docker: proxy, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := cri.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// TestDockerHostCriDockerd: cri-dockerd with the proxy as its Docker Engine. The pod's labels and annotations reach the
// handler, its plan the kernel, and CRI's own updates and execs work.
func TestDockerHostCriDockerd(t *testing.T) {
	r := newRig(t)
	c := startCriDockerd(t, r.Daemon, r.socket)
	r.h.want(plan.Plan{
		container(plan.CPUShares, plan.Int(300)), container(plan.CPUQuota, plan.Int(60000)), container(plan.OOMScoreAdj, plan.Int(900)),
	}, "closed")
	parent := "/" + r.Cgroup + "/kubepods/besteffort/podcri-1"
	labels := map[string]string{"io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": "cri-1"}
	pod := &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "default", Uid: "cri-1"},
		Labels:      map[string]string{"koordinator.sh/qosClass": "BE"},
		Annotations: map[string]string{protocol.AnnotationCPUBurst: `{"policy":"none"}`},
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: parent, SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}},
	}
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app"},
		Image:    &runtimeapi.ImageSpec{Image: parts.ImageRef},
		Labels:   map[string]string{"io.kubernetes.container.name": "app"},
		Envs:     []*runtimeapi.KeyValue{{Key: "PASSWORD", Value: []byte(secret)}},
		Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{
			CpuShares: 2, MemoryLimitInBytes: 64 << 20, OomScoreAdj: 1000,
		}},
	}
	for k, v := range labels { // as the kubelet does
		pod.Labels[k], config.Labels[k] = v, v
	}
	podID, err := c.RunPod(t.Context(), pod, "")
	if err != nil {
		t.Fatal(err)
	}
	id, err := c.CreateContainer(t.Context(), podID, config, pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	calls, last, rest := r.h.snapshot()
	if len(calls) < 4 || len(rest) > 0 || calls[len(calls)-1] != "start app of default/p: 204" {
		t.Fatalf("the handler was told %v, left %v", calls, rest)
	}
	dir := parent + "/" + id
	if p := last.Pod; p.Cgroup != parent || p.Class() != protocol.QoSBE || p.KubeQoS != protocol.KubeBestEffort || p.Ask.CPUBurst == nil || last.Container.Cgroup != dir || len(p.Problems) > 0 {
		t.Errorf("pod %+v, container %+v", p, last.Container)
	}
	wantFile(t, dir, "cpu/cpu.shares=300", "/cpu.weight=12")
	wantFile(t, dir, "cpu/cpu.cfs_quota_us=60000", "/cpu.max=60000 100000")
	wantFile(t, dir, "memory/memory.limit_in_bytes=67108864", "/memory.max=67108864")
	checkCRI(t, r, c, id, dir)
	if err := c.StopPod(t.Context(), podID); err != nil {
		t.Error(err)
	}
	if err := c.RemovePod(t.Context(), podID); err != nil {
		t.Error(err)
	}
	if calls, _, _ := r.h.snapshot(); len(calls) == 0 || calls[len(calls)-1] != "remove sandbox of default/p: 204" {
		t.Errorf("at the end the handler was told %v", calls)
	}
	if strings.Contains(r.log.String(), secret) {
		t.Error("a secret is in the log")
	}
}

func checkCRI(t *testing.T, r *rig, c *cri.Client, id, dir string) {
	t.Helper()
	out, err := c.ExecSync(t.Context(), id, "sh", "-c", "echo $PASSWORD")
	if err != nil || out.Stdout != secret+"\n" {
		t.Errorf("exec: %+v, %v", out, err)
	}
	status, _, err := c.ContainerStatus(t.Context(), id)
	if err != nil || !strings.Contains(status.Annotations[protocol.AnnotationApplied], `"cpu.shares":"300 batch"`) {
		t.Errorf("our mark is %q, %v", status.GetAnnotations()[protocol.AnnotationApplied], err)
	}
	r.h.want(plan.Plan{container(plan.CPUShares, plan.Int(400))}, "closed")
	if err := c.UpdateContainer(t.Context(), id, &runtimeapi.LinuxContainerResources{CpuShares: 20, MemoryLimitInBytes: 96 << 20}); err != nil {
		t.Fatal(err)
	}
	wantFile(t, dir, "cpu/cpu.shares=400", "/cpu.weight=16")
	wantFile(t, dir, "memory/memory.limit_in_bytes=100663296", "/memory.max=100663296")
}

// TestDockerHostKoordCriDockerd: kubelet's calls by CRI to cri-dockerd, which has the real koord-runtime-proxy as its engine.
func TestDockerHostKoordCriDockerd(t *testing.T) {
	k := newKoord(t)
	c := startCriDockerd(t, k.Daemon, k.socket)
	k.eventually("the proxy is connected", func() error {
		if k.proxy.Status().ConnectedSince.IsZero() {
			return errors.New("not yet")
		}
		return nil
	})
	const uid = "5c1e0001-0000-4000-8000-000000000002"
	parent := "/" + k.Cgroup + "/kubepods/besteffort/pod" + uid
	k.names[parent] = "default/job"
	config, app := kubeletConfigs("job", uid, "work", parent)
	config.Labels["koordinator.sh/qosClass"] = "BE"
	config.Annotations = batchAnnotation("work")
	podID, err := c.RunPod(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	id, err := c.CreateContainer(t.Context(), podID, app, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	k.holds("after the start", parent+"/"+id, batchShares, batchQuota, batchMemory)
	k.holds("after the start", parent, batchPod, batchQuota, batchMemory)
	status, _, err := c.ContainerStatus(t.Context(), id)
	mark := status.GetAnnotations()[protocol.AnnotationApplied]
	if err != nil || !strings.Contains(mark, `"cpu.shares":"512 batch"`) && !k.unmarked(parent, mark) {
		t.Errorf("our mark is %q, %v", mark, err)
	}
	if err := c.UpdateContainer(t.Context(), id, &runtimeapi.LinuxContainerResources{CpuShares: 3, OomScoreAdj: 1000}); err != nil {
		t.Fatal(err)
	}
	k.holds("after an update", parent+"/"+id, batchShares, batchQuota, batchMemory)
	k.end(syscall.SIGKILL)
	if _, err := c.CreateContainer(t.Context(), podID, app, config); err == nil {
		t.Error("a container was created without a proxy")
	}
	k.begin()
	app.Metadata.Attempt = 1 // the kubelet tries again
	next, err := c.CreateContainer(t.Context(), podID, app, config)
	if err == nil {
		err = c.StartContainer(t.Context(), next)
	}
	if err != nil {
		t.Fatal(err)
	}
	k.holds("after a restart of the proxy", parent+"/"+next, batchShares, batchQuota, batchMemory)
	k.eventually("the pod's sums", func() error {
		return differs(parent, knob{"cpu/cpu.shares=512", "cpu.weight=20"}, batchQuota, batchMemory)
	})
	if err := errors.Join(c.StopPod(t.Context(), podID), c.RemovePod(t.Context(), podID)); err != nil {
		t.Error(err)
	}
	k.eventually("all is forgotten", func() error {
		if s := k.proxy.Status().Counters; s["containers"] != 0 || s["pods"] != 0 {
			return fmt.Errorf("still known: %v", s)
		}
		return nil
	})
	if strings.Contains(k.proxy.Log(), secret) {
		t.Error("a secret is in the log")
	}
}

// kubeletConfigs are a pod and a container as the kubelet states them.
func kubeletConfigs(name, uid, container, parent string) (*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig) {
	pod := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: uid},
		Labels:   map[string]string{},
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: parent, SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}},
	}
	app := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: container},
		Image:    &runtimeapi.ImageSpec{Image: parts.ImageRef},
		Labels:   map[string]string{"io.kubernetes.container.name": container},
		Envs:     []*runtimeapi.KeyValue{{Key: "PASSWORD", Value: []byte(secret)}},
		Linux:    &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpuShares: 2, OomScoreAdj: 1000}},
	}
	for k, v := range map[string]string{"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": uid} {
		pod.Labels[k], app.Labels[k] = v, v
	}
	return pod, app
}
