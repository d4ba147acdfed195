// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const containerInfo = `{"sandboxID":"sb1","pid":42,"config":{"CDI_devices":[{"name":"v/c=1"}]},"runtimeSpec":{
 "annotations":{"koord-rt.dev/applied":"{\"gen\":3,\"by\":\"koord-nri/x\",\"set\":{\"cpu.shares\":\"5 batch\"}}"},
 "process":{"env":["A=secret","B"],"oomScoreAdj":7},"linux":{"cgroupsPath":"kubepods-burstable-podu_1.slice:cri-containerd:c1"}}}`

const podInfo = `{"pid":41,"runtimeHandler":"runc","config":{"linux":{"cgroup_parent":"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice",
 "resources":{"cpu_shares":100,"cpu_quota":20000,"memory_limit_in_bytes":1000},"overhead":{"cpu_shares":10,"memory_limit_in_bytes":24}}}}`

func containerStatus() *runtimeapi.ContainerStatusResponse {
	return &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{
			Id: "c1", Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: 2}, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			CreatedAt: 12345, Labels: map[string]string{"x": "y"},
			Resources: &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{
				CpuPeriod: 100000, CpuQuota: -1, CpuShares: 512, MemoryLimitInBytes: 1 << 33, OomScoreAdj: -998, CpusetCpus: "0-3", CpusetMems: "0",
				Unified: map[string]string{"memory.high": "7"},
			}},
		},
		Info: map[string]string{"info": containerInfo},
	}
}

func podStatus() *runtimeapi.PodSandboxStatusResponse {
	return &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{
			Id: "sb1", Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Uid: "u-1", Namespace: "default", Attempt: 1},
			Labels: map[string]string{protocol.LabelQoSClass: "LS"}, Annotations: map[string]string{"a": "b"}, RuntimeHandler: "",
		},
		Info: map[string]string{"info": podInfo},
	}
}

func wantContainer() *workload.Container {
	return &workload.Container{
		ID: "c1", Name: "app", State: workload.StateRunning, PID: 42,
		Cgroup: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice/cri-containerd-c1.scope",
		Base: workload.Resources{
			Shares: unit.Some(512), Quota: unit.Some(-1), Period: unit.Some(100000), CPUs: "0-3", Mems: "0",
			MemoryLimit: unit.Some(1 << 33), OOMScoreAdj: unit.Some(-998), Unified: map[string]string{"memory.high": "7"},
		},
		EnvNames: []string{"A", "B"}, CDIDevices: []string{"v/c=1"},
		Applied: &protocol.Applied{Generation: 3, By: "koord-nri/x", Set: map[string]string{"cpu.shares": "5 batch"}},
	}
}

// fakeRuntime answers as containerd does, through the real gRPC library: our wire format is held against the real one.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (fakeRuntime) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	if r.ContainerId != "c1" || !r.Verbose {
		return nil, status.Errorf(codes.NotFound, "container %q is not known (100%%)", r.ContainerId)
	}
	return containerStatus(), nil
}

func (fakeRuntime) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	if r.PodSandboxId != "sb1" || !r.Verbose {
		return nil, status.Error(codes.NotFound, "no sandbox")
	}
	return podStatus(), nil
}

func TestLister(t *testing.T) {
	t.Parallel()
	list := serve(t, fakeRuntime{})
	p, c, err := list.Container(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantContainer(), c); diff != "" {
		t.Errorf("container (-want +got):\n%s", diff)
	}
	if p.FullName() != "default/web" || p.UID != "u-1" || p.Class() != protocol.QoSLS || p.KubeQoS != protocol.KubeBurstable || p.PID != 41 || p.RuntimeHandler != "runc" {
		t.Errorf("pod = %+v", p)
	}
	if p.Base.Shares != unit.Some(110) || p.Base.Quota != unit.Some(20000) || p.Base.MemoryLimit != unit.Some(1024) {
		t.Errorf("pod base = %+v", p.Base)
	}
	if _, _, err := list.Container(t.Context(), "other"); err == nil || !strings.Contains(err.Error(), "not known (100%)") {
		t.Errorf("unknown container: %v", err)
	}
}

func TestNewListerRefuses(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"", "tcp://localhost:1", "unix://relative", "/run/x.sock"} {
		if _, err := cri.NewLister(endpoint); err == nil {
			t.Errorf("%q was accepted", endpoint)
		}
	}
}

func FuzzStatus(f *testing.F) {
	for _, m := range []proto.Message{containerStatus(), podStatus()} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if c, _, err := cri.Container(raw); err == nil && slices.Contains(strings.Split(c.Cgroup, "/"), "..") {
			t.Errorf("cgroup %q leaves its root", c.Cgroup)
		}
		if p, err := cri.Pod(raw); err == nil && slices.Contains(strings.Split(p.Cgroup, "/"), "..") {
			t.Errorf("cgroup %q leaves its root", p.Cgroup)
		}
	})
}
