// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/workload"
)

func TestRunPodSandbox(t *testing.T) {
	t.Parallel()
	m := &runtimeapi.RunPodSandboxRequest{Config: sandboxConfig(), RuntimeHandler: "runc"}
	plant(m.ProtoReflect())
	raw := marshal(t, m)
	r, err := cri.ReadRunPodSandbox(raw)
	if err != nil {
		t.Fatal(err)
	}
	p := r.Pod("sb1", r.Handler)
	p.Ask, p.Problems = protocol.Ask{}, nil
	want := &workload.Pod{
		ID: "sb1", UID: "u-1", Namespace: "default", Name: "web", RuntimeHandler: "runc", KubeQoS: protocol.KubeBurstable,
		QoSCgroup: "/kubepods.slice/kubepods-burstable.slice", Cgroup: "/kubepods.slice/kubepods-burstable.slice/" + podSlice,
		Base: workload.Resources{Shares: some(110), Quota: some(20000), Period: some(100000), MemoryLimit: some(1024)},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
	out, err := r.Patch(&cri.SandboxPatch{
		Labels: []cri.Pair{{Key: "app", Value: "x"}}, Annotations: []cri.Pair{{Key: "new", Value: "1"}}, CgroupParent: "/k",
		Overhead: cri.ResourcesPatch{Shares: some(3)}, Resources: cri.ResourcesPatch{Quota: some(-1), Unified: []cri.Pair{{Key: "a.b", Value: "c"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got runtimeapi.RunPodSandboxRequest
	if err := proto.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	c := m.Config
	c.Labels["app"], c.Annotations["new"], c.Linux.CgroupParent, c.Linux.Overhead.CpuShares = "x", "1", "/k", 3
	c.Linux.Resources.CpuQuota, c.Linux.Resources.Unified = -1, map[string]string{"a.b": "c"}
	if diff := cmp.Diff(m, &got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, nothing := range []*cri.SandboxPatch{nil, {}} {
		if same, err := r.Patch(nothing); err != nil || !bytes.Equal(same, raw) {
			t.Errorf("%v, %x", err, same)
		}
	}
}

func TestPodPlaces(t *testing.T) {
	t.Parallel()
	for parent, want := range map[string]string{
		podSlice:                    "/kubepods.slice/kubepods-burstable.slice/" + podSlice,
		"/kubepods/besteffort/pod7": "/kubepods/besteffort/pod7",
		"":                          "",
		"/kubepods/../../etc":       "",
	} {
		c := cri.SandboxConfig{CgroupParent: parent}
		p := c.Pod("", "")
		if p.Cgroup != want || (want == "") != (len(p.Problems) == 1) {
			t.Errorf("%q: %q, %v", parent, p.Cgroup, p.Problems)
		}
	}
	unlimited := cri.PodResources(&cri.Resources{Quota: -1}, &cri.Resources{Quota: 5, Memory: 7})
	if unlimited.Quota != some(-1) || unlimited.MemoryLimit.Set {
		t.Errorf("an overhead limits the unlimited: %+v", unlimited)
	}
}

func TestUpdatePod(t *testing.T) {
	t.Parallel()
	m := &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: "sb1",
		Overhead: &runtimeapi.LinuxContainerResources{CpuShares: 5}, Resources: &runtimeapi.LinuxContainerResources{CpuShares: 10, CpuQuota: 7}}
	plant(m.ProtoReflect())
	raw := marshal(t, m)
	r, err := cri.ReadUpdatePod(raw)
	if err != nil {
		t.Fatal(err)
	}
	if b := r.Base(); r.ID != "sb1" || b.Shares != some(15) || b.Quota != some(7) {
		t.Errorf("request = %+v", r)
	}
	out, err := r.Patch(nil, &cri.ResourcesPatch{Quota: some(9)})
	if err != nil {
		t.Fatal(err)
	}
	var got runtimeapi.UpdatePodSandboxResourcesRequest
	if err := proto.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	m.Resources.CpuQuota = 9
	if diff := cmp.Diff(m, &got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if same, err := r.Patch(&cri.ResourcesPatch{}, nil); err != nil || !bytes.Equal(same, raw) {
		t.Errorf("%v, %x", err, same)
	}
}

func TestReadID(t *testing.T) {
	t.Parallel()
	for _, m := range []proto.Message{
		&runtimeapi.StartContainerRequest{ContainerId: "x"}, &runtimeapi.StopContainerRequest{ContainerId: "x", Timeout: 3},
		&runtimeapi.RemoveContainerRequest{ContainerId: "x"}, &runtimeapi.ContainerStatusRequest{ContainerId: "x", Verbose: true},
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: "x"}, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: "x"},
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: "x"}, &runtimeapi.RunPodSandboxResponse{PodSandboxId: "x"},
		&runtimeapi.CreateContainerResponse{ContainerId: "x"},
	} {
		if id, err := cri.ReadID(marshal(t, m)); err != nil || id != "x" {
			t.Errorf("%T: %q, %v", m, id, err)
		}
	}
	if _, err := cri.ReadID([]byte{0x0a, 0x05, 'x'}); err == nil {
		t.Error("a torn message has an id")
	}
}

// FuzzRequests: what the runtime can read we can, with the same ids; patches give messages that it can read.
func FuzzRequests(f *testing.F) {
	run := &runtimeapi.RunPodSandboxRequest{RuntimeHandler: "r", Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u", Attempt: 3}, Annotations: map[string]string{"a": "b"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/k", Resources: &runtimeapi.LinuxContainerResources{CpuShares: 1}}}}
	up := &runtimeapi.UpdateContainerResourcesRequest{ContainerId: "c", Linux: &runtimeapi.LinuxContainerResources{CpuQuota: -1}, Annotations: map[string]string{"a": "b"}}
	for _, m := range []proto.Message{run, up, &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: "p", Resources: &runtimeapi.LinuxContainerResources{CpuQuota: 1}}} {
		f.Add(marshal(f, m))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		fuzzRun(t, raw)
		fuzzUpdate(t, raw)
		fuzzUpdatePod(t, raw)
		var start runtimeapi.StartContainerRequest
		if proto.Unmarshal(raw, &start) == nil {
			if id, err := cri.ReadID(raw); err != nil || id != start.ContainerId {
				t.Errorf("id %q, %v, want %q", id, err, start.ContainerId)
			}
		}
	})
}

func fuzzRun(t *testing.T, raw []byte) {
	t.Helper()
	var want, got runtimeapi.RunPodSandboxRequest
	if proto.Unmarshal(raw, &want) != nil {
		return
	}
	r, err := cri.ReadRunPodSandbox(raw)
	if err != nil || r.UID != want.GetConfig().GetMetadata().GetUid() || r.Handler != want.RuntimeHandler || r.Attempt != want.GetConfig().GetMetadata().GetAttempt() {
		t.Fatalf("%v: %+v of %v", err, r, &want)
	}
	out, err := r.Patch(&cri.SandboxPatch{CgroupParent: "/new", Annotations: []cri.Pair{{Key: "a", Value: "c"}}})
	if err != nil || proto.Unmarshal(out, &got) != nil {
		t.Fatalf("patch: %v", err)
	}
	if want.Config == nil {
		want.Config = &runtimeapi.PodSandboxConfig{}
	}
	if want.Config.Linux == nil {
		want.Config.Linux = &runtimeapi.LinuxPodSandboxConfig{}
	}
	want.Config.Linux.CgroupParent = "/new"
	want.Config.Annotations = withPairs(want.Config.Annotations, []cri.Pair{{Key: "a", Value: "c"}})
	if !proto.Equal(&want, &got) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(&want, &got, protocmp.Transform()))
	}
}

func fuzzUpdate(t *testing.T, raw []byte) {
	t.Helper()
	var want, got runtimeapi.UpdateContainerResourcesRequest
	if proto.Unmarshal(raw, &want) != nil {
		return
	}
	r, err := cri.ReadUpdateContainer(raw)
	if err != nil || r.ID != want.ContainerId || r.Resources.Quota != want.GetLinux().GetCpuQuota() {
		t.Fatalf("%v: %+v of %v", err, r, &want)
	}
	out, err := r.Patch(&cri.UpdatePatch{Resources: cri.ResourcesPatch{CPUs: "9", Quota: some(0)}})
	if err != nil || proto.Unmarshal(out, &got) != nil {
		t.Fatalf("patch: %v", err)
	}
	if want.Linux == nil {
		want.Linux = &runtimeapi.LinuxContainerResources{}
	}
	want.Linux.CpusetCpus, want.Linux.CpuQuota = "9", 0
	if !proto.Equal(&want, &got) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(&want, &got, protocmp.Transform()))
	}
}

func fuzzUpdatePod(t *testing.T, raw []byte) {
	t.Helper()
	var want, got runtimeapi.UpdatePodSandboxResourcesRequest
	if proto.Unmarshal(raw, &want) != nil {
		return
	}
	r, err := cri.ReadUpdatePod(raw)
	if err != nil || r.ID != want.PodSandboxId || r.Overhead.Shares != want.GetOverhead().GetCpuShares() {
		t.Fatalf("%v: %+v of %v", err, r, &want)
	}
	out, err := r.Patch(&cri.ResourcesPatch{Shares: some(4)}, nil)
	if err != nil || proto.Unmarshal(out, &got) != nil {
		t.Fatalf("patch: %v", err)
	}
	if want.Overhead == nil {
		want.Overhead = &runtimeapi.LinuxContainerResources{}
	}
	want.Overhead.CpuShares = 4
	if !proto.Equal(&want, &got) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(&want, &got, protocmp.Transform()))
	}
}
