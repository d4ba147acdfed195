// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// criDockerd answers as cri-dockerd 0.3.17 and 0.4.3 do (core/sandbox_status.go, core/container_status.go, core/convert.go): no
// verbose part of a sandbox, no resources, no spec.
type criDockerd struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	info  map[string]string // of a container; older releases have none
	state runtimeapi.ContainerState
}

func (criDockerd) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "docker", RuntimeVersion: "20.10.24"}, nil
}

func (criDockerd) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	if r.PodSandboxId != "sb1" {
		return nil, status.Error(codes.NotFound, "no such sandbox")
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: "sb1", Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Uid: "u-1", Namespace: "default"}, RuntimeHandler: "runc",
	}}, nil
}

func (s criDockerd) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Info: s.info, Status: &runtimeapi.ContainerStatus{
		Id: r.ContainerId, Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, State: s.state,
		Annotations: map[string]string{protocol.AnnotationApplied: `{"gen":3,"by":"koord-runtime-proxy/x","set":{"cpu.shares":"512 batch"},"base":{"cpu.shares":"2"}}`},
	}}, nil
}

func (criDockerd) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	if r.Filter.GetId() == "" {
		return nil, status.Error(codes.InvalidArgument, "not one container")
	}
	return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{Id: r.Filter.Id, PodSandboxId: "sb1"}}}, nil
}

// tree is a node with one pod, and one running container in it.
type tree struct{}

var errNoGroup = errors.New("no such cgroup")

func (tree) Pod(uid string) (string, error) {
	if uid != "u-1" {
		return "", errNoGroup
	}
	return "/kubepods/burstable/podu-1", nil
}

func (tree) Within(pod, id string) (string, int, error) {
	if pod == "/kubepods/burstable/podu-1" && (id == "c1" || id == "sb1") {
		return pod + "/" + id, 7, nil
	}
	return "", 0, errNoGroup
}

func (tree) Resources(t plan.Target, pid int, ours []plan.Plan) workload.Resources {
	r := workload.Resources{Quota: unit.Some(50000), Period: unit.Some(100000), OOMScoreAdj: unit.Some(int64(pid))}
	for _, p := range ours {
		if s := p.Find(t, plan.CPUShares, ""); s != nil && !r.Shares.Set {
			r.Shares = unit.Some(s.Value.Int())
		}
	}
	return r
}

// What cri-dockerd does not tell comes from the list and from the node; the marks then tell what of it is ours.
func TestUntold(t *testing.T) {
	t.Parallel()
	const told = `{"sandboxID":"sb1","pid":42}`
	for name, c := range map[string]struct {
		info   map[string]string
		state  runtimeapi.ContainerState
		id     string
		marks  []*protocol.Applied
		cgroup string
		pid    int
		base   workload.Resources
		err    string
	}{
		"runs": {
			info: map[string]string{"info": told}, state: runtimeapi.ContainerState_CONTAINER_RUNNING, id: "c1", cgroup: "/kubepods/burstable/podu-1/c1", pid: 42,
			base: workload.Resources{Shares: unit.Some(2), Quota: unit.Some(50000), Period: unit.Some(100000), OOMScoreAdj: unit.Some(42)},
		},
		"without a verbose part": {
			state: runtimeapi.ContainerState_CONTAINER_RUNNING, id: "c1", cgroup: "/kubepods/burstable/podu-1/c1", pid: 7,
			base: workload.Resources{Shares: unit.Some(2), Quota: unit.Some(50000), Period: unit.Some(100000), OOMScoreAdj: unit.Some(7)},
		},
		"the ledger is newer than the annotation": {
			info: map[string]string{"info": told}, state: runtimeapi.ContainerState_CONTAINER_RUNNING, id: "c1", cgroup: "/kubepods/burstable/podu-1/c1", pid: 42,
			marks: []*protocol.Applied{{Set: map[string]string{"cpu.shares": "700 batch"}, Base: map[string]string{"cpu.shares": "9"}}},
			base:  workload.Resources{Shares: unit.Some(9), Quota: unit.Some(50000), Period: unit.Some(100000), OOMScoreAdj: unit.Some(42)},
		},
		"has not started": {info: map[string]string{"info": told}, id: "c2", cgroup: "/kubepods/burstable/podu-1/c2", pid: 42},
		"has ended":       {info: map[string]string{"info": told}, state: runtimeapi.ContainerState_CONTAINER_EXITED, id: "c2", pid: 42},
		"runs, and its cgroup is gone": {
			info: map[string]string{"info": told}, state: runtimeapi.ContainerState_CONTAINER_RUNNING, id: "c2", err: "place container c2: no such cgroup",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := serve(t, criDockerd{info: c.info, state: c.state})
			if _, err := l.Record(t.Context(), c.id); c.cgroup != "" && (err == nil || !strings.Contains(err.Error(), "does not tell its cgroup")) {
				t.Errorf("without a node: %v", err)
			}
			l.Beneath(tree{})
			read, err := l.Record(t.Context(), c.id)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := read(c.marks...)
			if got.Cgroup != c.cgroup || got.PID != c.pid {
				t.Errorf("in %q, process %d", got.Cgroup, got.PID)
			}
			if diff := cmp.Diff(c.base, got.Base); diff != "" {
				t.Errorf("base (-want +got):\n%s", diff)
			}
			if again := read(c.marks...); !cmp.Equal(again, got) {
				t.Errorf("read a second time: %+v", again)
			}
		})
	}
}

func TestUntoldPod(t *testing.T) {
	t.Parallel()
	l := serve(t, criDockerd{})
	if _, err := l.Sandbox(t.Context(), "sb1"); err == nil || !strings.Contains(err.Error(), "place pod default/web: the runtime does not tell its cgroup") {
		t.Errorf("without a node: %v", err)
	}
	l.Beneath(tree{})
	p, err := l.Sandbox(t.Context(), "sb1")
	if err != nil {
		t.Fatal(err)
	}
	if p.Cgroup != "/kubepods/burstable/podu-1" || p.KubeQoS != protocol.KubeBurstable || p.PID != 7 || !p.BaseUntold || p.RuntimeHandler != "runc" {
		t.Errorf("pod %+v", p)
	}
	c, err := l.SandboxConfig(t.Context(), "sb1")
	if err != nil || c.CgroupParent != "/kubepods/burstable/podu-1" {
		t.Errorf("stated %+v, %v", c, err)
	}
	if pod, _, err := l.Container(t.Context(), "c1"); err != nil || pod.Cgroup != p.Cgroup {
		t.Errorf("with its container: %+v, %v", pod, err)
	}
}

// crioContainer and crioPods are what CRI-O answers, put together from its sources (server/container_status.go,
// server/sandbox_status.go and server/sandbox_run_linux.go of 1.24, 1.28 and 1.36); TestCRIORecorded has those of a running one.
const crioContainer = `{"sandboxID":"sb1","pid":42,"runtimeSpec":{"ociVersion":"1.2.0",
 "process":{"env":["A=secret"],"oomScoreAdj":-998},"annotations":{"io.kubernetes.cri-o.SandboxID":"sb1",
 "koord-rt.dev/applied":"{\"gen\":3,\"by\":\"koord-runtime-proxy/x\",\"set\":{\"cpu.shares\":\"512 batch\"},\"base\":{\"cpu.shares\":\"2\"}}"},
 "linux":{"cgroupsPath":"kubepods-burstable-podu_1.slice:crio:c1","resources":{"memory":{"limit":1073741824},
 "cpu":{"shares":512,"quota":50000,"period":100000,"cpus":"0-1"},"unified":{"memory.high":"7"}}}},"privileged":false`

func TestCRIO(t *testing.T) {
	t.Parallel()
	want := workload.Resources{
		Shares: unit.Some(2), Quota: unit.Some(50000), Period: unit.Some(100000), CPUs: "0-1", MemoryLimit: unit.Some(1 << 30),
		OOMScoreAdj: unit.Some(-998), Unified: map[string]string{"memory.high": "7"},
	}
	linux := &runtimeapi.LinuxContainerResources{
		CpuShares: 512, CpuQuota: 50000, CpuPeriod: 100000, CpusetCpus: "0-1", MemoryLimitInBytes: 1 << 30, OomScoreAdj: -998,
		Unified: map[string]string{"memory.high": "7"}, HugepageLimits: []*runtimeapi.HugepageLimit{},
	}
	for name, c := range map[string]struct {
		info      string
		resources *runtimeapi.ContainerResources
	}{
		"1.24, without resources":      {crioContainer + "}", nil},
		"1.36":                         {crioContainer + "}", &runtimeapi.ContainerResources{Linux: linux}},
		"1.36 with checkpoint/restore": {crioContainer + `,"checkpointedAt":"0001-01-01T00:00:00Z","restored":false}`, &runtimeapi.ContainerResources{Linux: linux}},
	} {
		raw := marshal(t, &runtimeapi.ContainerStatusResponse{Info: map[string]string{"info": c.info}, Status: &runtimeapi.ContainerStatus{
			Id: "c1", Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING, Resources: c.resources,
		}})
		got, sandbox, err := cri.Container(raw)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if sandbox != "sb1" || got.PID != 42 || got.Cgroup != "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice/crio-c1.scope" {
			t.Errorf("%s: sandbox %s, %+v", name, sandbox, got)
		}
		if diff := cmp.Diff(want, got.Base); diff != "" {
			t.Errorf("%s: base (-want +got):\n%s", name, diff)
		}
	}
}

func TestCRIOPod(t *testing.T) {
	t.Parallel()
	const (
		slice   = `"io.kubernetes.cri-o.CgroupParent":"kubepods-burstable-podu_1.slice","io.kubernetes.cri-o.RuntimeHandler":"kata"`
		sums    = `{"cpu_period":100000,"cpu_quota":20000,"cpu_shares":100,"memory_limit_in_bytes":1000}`
		add     = `{"cpu_shares":10,"memory_limit_in_bytes":24}`
		own     = `"linux":{"cgroupsPath":"kubepods-burstable-podu_1.slice:crio:sb1"}`
		dropped = `{"runtimeSpec":{"annotations":{`
	)
	quote := func(text string) string { return `"` + strings.ReplaceAll(text, `"`, `\"`) + `"` }
	full := workload.Resources{Shares: unit.Some(110), Quota: unit.Some(20000), Period: unit.Some(100000), MemoryLimit: unit.Some(1024)}
	dir := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice"
	for name, c := range map[string]struct {
		info, cgroup string
		pid          int
		base         workload.Resources
	}{
		"1.24, infra container dropped": {info: dropped + slice + `},` + own + `}}`, cgroup: dir},
		"1.28, infra container dropped": {
			info:   dropped + slice + `,"io.kubernetes.cri-o.PodLinuxResources":` + quote(sums) + `,"io.kubernetes.cri-o.PodLinuxOverhead":` + quote(add) + `},` + own + `}}`,
			cgroup: dir, base: full,
		},
		"1.36, with infra container": {
			info: `{"image":"pause","pid":41,"runtimeSpec":{"annotations":{` + slice + `,"pod-linux-resources.crio.io":` + quote(sums) + `,"pod-linux-overhead.crio.io":` +
				quote(add) + `},` + own + `}}`,
			cgroup: dir, base: full, pid: 41,
		},
		"by cgroupfs": {
			info:   dropped + `"io.kubernetes.cri-o.CgroupParent":"/kubepods/burstable/podu-1","io.kubernetes.cri-o.RuntimeHandler":"kata"},"linux":{"cgroupsPath":"/kubepods/burstable/podu-1/crio-sb1"}}}`,
			cgroup: "/kubepods/burstable/podu-1",
		},
	} {
		raw := marshal(t, &runtimeapi.PodSandboxStatusResponse{Info: map[string]string{"info": c.info}, Status: &runtimeapi.PodSandboxStatus{
			Id: "sb1", Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Uid: "u-1", Namespace: "default"},
		}})
		p, err := cri.Pod(raw)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p.Cgroup != c.cgroup || p.KubeQoS != protocol.KubeBurstable || p.RuntimeHandler != "kata" || p.PID != c.pid {
			t.Errorf("%s: %+v", name, p)
		}
		if diff := cmp.Diff(c.base, p.Base); diff != "" {
			t.Errorf("%s: base (-want +got):\n%s", name, diff)
		}
		if cfg, err := cri.ReadSandboxConfig(raw); err != nil || cfg.CgroupParent == "" {
			t.Errorf("%s: stated %+v, %v", name, cfg, err)
		}
	}
	bad := marshal(t, &runtimeapi.PodSandboxStatusResponse{Info: map[string]string{"info": dropped + slice + `,"pod-linux-resources.crio.io":"{"},` + own + `}}`}})
	if _, err := cri.Pod(bad); err == nil || !strings.Contains(err.Error(), "read annotation pod-linux-resources.crio.io") {
		t.Errorf("resources that are none: %v", err)
	}
}
