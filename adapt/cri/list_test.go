// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/workload"
)

func sandboxes() *runtimeapi.ListPodSandboxResponse {
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{
		{Id: "sb1", Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Uid: "u-1", Namespace: "default", Attempt: 3}, CreatedAt: 5,
			Labels: map[string]string{protocol.LabelQoSClass: "LS"}, Annotations: map[string]string{"a": "b"}, RuntimeHandler: "runc"},
		{Id: "sb2", State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY},
	}}
}

func containers() *runtimeapi.ListContainersResponse {
	return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{
		{Id: "c1", PodSandboxId: "sb1", Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: 2}, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			Annotations: map[string]string{protocol.AnnotationApplied: `{"gen":3,"by":"x","set":{"cpu.shares":"5 batch"}}`, "k": "v"}},
		{Id: "c2", PodSandboxId: "sb1", State: runtimeapi.ContainerState_CONTAINER_EXITED},
	}}
}

// lists is a runtime as far as the lists go. It does not know RuntimeConfig unless driver is set.
type lists struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	driver *runtimeapi.LinuxRuntimeConfiguration
}

func (lists) Version(_ context.Context, r *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: r.Version, RuntimeName: "containerd", RuntimeVersion: "v2.4.2", RuntimeApiVersion: "v1"}, nil
}

func (lists) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return sandboxes(), nil
}

func (lists) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return containers(), nil
}

func (l lists) RuntimeConfig(ctx context.Context, r *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	if l.driver == nil {
		return l.UnimplementedRuntimeServiceServer.RuntimeConfig(ctx, r)
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: l.driver}, nil
}

func (lists) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	if r.Verbose {
		return nil, errors.New("a verbose status was asked for")
	}
	s := containerStatus()
	s.Info = nil
	return s, nil
}

func (lists) PodSandboxStatus(context.Context, *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return podStatus(), nil
}

// serve runs a runtime and returns a client of it.
func serve(t *testing.T, r runtimeapi.RuntimeServiceServer) *cri.Lister {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s, r)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	list, err := cri.NewLister("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = list.Close() })
	return list
}

func TestCalls(t *testing.T) {
	t.Parallel()
	l := serve(t, lists{})
	ctx := t.Context()
	if v, err := l.Version(ctx); err != nil || v != (cri.Version{Name: "containerd", Version: "v2.4.2", API: "v1"}) {
		t.Errorf("version %+v, %v", v, err)
	}
	pods, err := l.Sandboxes(ctx)
	if err != nil || len(pods) != 2 {
		t.Fatalf("%v, %v", pods, err)
	}
	p := pods[0].Pod
	if !pods[0].Ready || pods[1].Ready || pods[0].Attempt != 3 || p.ID != "sb1" || p.UID != "u-1" || p.RuntimeHandler != "runc" {
		t.Errorf("sandboxes = %+v, %+v", pods[0], p)
	}
	cs, err := l.Containers(ctx)
	if err != nil || len(cs) != 2 {
		t.Fatalf("%v, %v", cs, err)
	}
	want := workload.ListedContainer{Sandbox: "sb1", Attempt: 2, Container: &workload.Container{ID: "c1", Name: "app", State: workload.StateRunning,
		Applied: &protocol.Applied{Generation: 3, By: "x", Set: map[string]string{"cpu.shares": "5 batch"}}}}
	if diff := cmp.Diff(want, cs[0]); diff != "" || cs[1].Container.State != workload.StateStopped {
		t.Errorf("container (-want +got):\n%s", diff)
	}
	c, err := l.ContainerStatus(ctx, "c1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantContainer().Base, c.Base); diff != "" || c.Name != "app" || c.State != workload.StateRunning {
		t.Errorf("%+v, base (-want +got):\n%s", c, diff)
	}
	if p, err := l.Sandbox(ctx, "sb1"); err != nil || p.PID != 41 || p.Cgroup == "" {
		t.Errorf("sandbox %+v, %v", p, err)
	}
}

func TestCgroupDriver(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		driver         *runtimeapi.LinuxRuntimeConfiguration
		systemd, known bool
		err            error
	}{
		"not told": {nil, false, false, cri.ErrUnimplemented},
		"systemd":  {&runtimeapi.LinuxRuntimeConfiguration{}, true, true, nil},
		"cgroupfs": {&runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}, false, true, nil},
		"new":      {&runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: 9}, false, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			systemd, known, err := serve(t, lists{driver: tt.driver}).Systemd(t.Context())
			if systemd != tt.systemd || known != tt.known || !errors.Is(err, tt.err) {
				t.Errorf("%v, %v, %v", systemd, known, err)
			}
		})
	}
}

// FuzzReplies: what a client can read of a runtime's answer we can, with the same result.
func FuzzReplies(f *testing.F) {
	status := containerStatus()
	status.Info = nil
	for _, m := range []proto.Message{sandboxes(), containers(), status, &runtimeapi.VersionResponse{RuntimeName: "a", RuntimeVersion: "b"},
		&runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: 1}}} {
		f.Add(marshal(f, m))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		fuzzLists(t, raw)
		var s runtimeapi.ContainerStatusResponse
		if proto.Unmarshal(raw, &s) == nil {
			c, err := cri.ReadContainerStatus(raw)
			if err != nil || c.ID != s.GetStatus().GetId() || c.Applied == nil && c.Base.CPUs != s.GetStatus().GetResources().GetLinux().GetCpusetCpus() {
				t.Errorf("%v: %+v of %v", err, c, &s)
			}
		}
		var v runtimeapi.VersionResponse
		if proto.Unmarshal(raw, &v) == nil {
			if got, err := cri.ReadVersion(raw); err != nil || got != (cri.Version{Name: v.RuntimeName, Version: v.RuntimeVersion, API: v.RuntimeApiVersion}) {
				t.Errorf("%v: %+v of %v", err, got, &v)
			}
		}
		var d runtimeapi.RuntimeConfigResponse
		if proto.Unmarshal(raw, &d) == nil {
			if systemd, known, err := cri.ReadCgroupDriver(raw); err != nil || systemd && known && d.GetLinux().GetCgroupDriver() != 0 {
				t.Errorf("%v: %v, %v of %v", err, systemd, known, &d)
			}
		}
	})
}

func fuzzLists(t *testing.T, raw []byte) {
	t.Helper()
	var pods runtimeapi.ListPodSandboxResponse
	if proto.Unmarshal(raw, &pods) == nil {
		got, err := cri.ReadSandboxes(raw)
		if err != nil || len(got) != len(pods.Items) {
			t.Fatalf("%v: %d of %v", err, len(got), &pods)
		}
		for i, p := range pods.Items {
			if got[i].Pod.ID != p.Id || got[i].Pod.UID != p.GetMetadata().GetUid() || got[i].Ready != (p.State == 0) {
				t.Errorf("%+v of %v", got[i], p)
			}
		}
	}
	var cs runtimeapi.ListContainersResponse
	if proto.Unmarshal(raw, &cs) == nil {
		got, err := cri.ReadContainers(raw)
		if err != nil || len(got) != len(cs.Containers) {
			t.Fatalf("%v: %d of %v", err, len(got), &cs)
		}
		for i, c := range cs.Containers {
			if got[i].Container.ID != c.Id || got[i].Sandbox != c.PodSandboxId || got[i].Container.Name != c.GetMetadata().GetName() ||
				(got[i].Container.State == workload.StateRunning) != (c.State == 1) {
				t.Errorf("%+v of %v", got[i], c)
			}
		}
	}
}

func FuzzRuntime(f *testing.F) {
	f.Add("containerd", "v1.7.30-rc.1+unknown")
	f.Add("cri-o", "1.36")
	f.Add("docker", "27.3.1")
	f.Add("x", "99999999999.1")
	f.Fuzz(func(t *testing.T, name, version string) {
		r := cri.Runtime(name, version)
		if r.Fields.RDTClass || r.Fields.Scheduler || len(r.Problems) == 0 || !r.Fields.OOMScoreAdj && (r.Fields.Unified || r.Fields.CDI) {
			t.Errorf("%q %q: %+v", name, version, r)
		}
	})
}
