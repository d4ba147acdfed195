// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// by is the writer of the marks in these tests.
func by() mark.By {
	return mark.By{Generation: 7, Program: "koord-runtime-proxy", Version: "test"}
}

func view(name, version string) *node.View {
	v := &node.View{Generation: 7, Runtime: cri.Runtime(name, version)}
	v.Kernel.Cgroup = node.CgroupV2
	v.Kernel.Devices = []node.DeviceNode{{Type: "gpu", Path: "/dev/nvidia0", Major: 195, MinorNumber: 0}}
	return v
}

// set is one setting of a container.
func set(k plan.Knob, key string, value plan.Value) plan.Setting {
	return plan.Setting{Target: plan.Target{Level: plan.LevelContainer}, Knob: k, Key: key, Value: value, Owner: protocol.FeatureBatch, Reason: "test"}
}

func number(k plan.Knob, n int64) plan.Setting { return set(k, "", plan.Int(n)) }

// create runs a plan through a request, and returns the request as the runtime reads it.
func create(t *testing.T, v *node.View, m *runtimeapi.CreateContainerRequest, p plan.Plan) (*runtimeapi.CreateContainerRequest, plan.Plan) {
	t.Helper()
	r, err := cri.ReadCreateContainer(marshal(t, m))
	if err != nil {
		t.Fatal(err)
	}
	patch, rest := cri.Create(v, p, r, r.Container(), by())
	raw, err := r.Patch(patch)
	if err != nil {
		t.Fatal(err)
	}
	var out runtimeapi.CreateContainerRequest
	if err := proto.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return &out, rest
}

// carried is a plan of all that a request carries.
func carried() plan.Plan {
	return plan.Plan{
		number(plan.CPUShares, 512), number(plan.CPUQuota, -1), number(plan.CPUPeriod, 50000), set(plan.CPUSetCPUs, "", plan.Text("4-5")),
		set(plan.CPUSetMems, "", plan.Text("1")), number(plan.MemoryLimit, 1<<31), number(plan.OOMScoreAdj, 100),
		number(plan.MemoryHigh, -1), number(plan.MemoryMin, 4096), number(plan.MemoryLow, 8192), number(plan.MemoryOOMGroup, 0), number(plan.CPUBurst, 0),
		set(plan.Env, "WEB_SERVICE_1", plan.Text("secret")), set(plan.Env, "VISIBLE", plan.Text("0")),
		set(plan.Device, "/dev/nvidia0", plan.Text("c 195:0 rw")), set(plan.CDIDevice, "nvidia.com/gpu=1", plan.Text("nvidia.com/gpu=1")),
		set(plan.Mount, "/opt/x.so", plan.Text("/opt/x.so rbind,ro")),
	}
}

// left is a plan of what no request carries.
func left() plan.Plan {
	observed := number(plan.CPUQuota, 1000)
	observed.Observe = true
	pod := number(plan.MemoryLow, 1)
	pod.Target.Level = plan.LevelPod
	return plan.Plan{
		set(plan.RDTClass, "", plan.Text("BE")), number(plan.SchedPolicy, 5), set(plan.CoreSchedCookie, "", plan.Text("g")), number(plan.CPUBvt, -1),
		set(plan.IOReadBPS, "8:0", plan.Int(1024)), set(plan.IOWeight, "", plan.Int(50)), number(plan.MemoryWmarkRatio, 95),
		set(plan.Device, "/dev/gone", plan.Text("c 1:1 rwm")), set(plan.Mount, "/x", plan.Text("/x rbind,noexec")), observed, pod,
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	p := append(carried(), left()...)
	got, rest := create(t, view("containerd", "v2.0.5"), createRequest(), p)
	if diff := cmp.Diff(left().String(), rest.String()); diff != "" {
		t.Errorf("rest (-want +got):\n%s", diff)
	}
	want := createRequest()
	l := want.Config.Linux.Resources
	l.CpuShares, l.CpuQuota, l.CpuPeriod, l.CpusetCpus, l.CpusetMems = 512, -1, 50000, "4-5", "1"
	l.MemoryLimitInBytes, l.MemorySwapLimitInBytes, l.OomScoreAdj = 1<<31, 1<<31, 100
	l.Unified = map[string]string{"memory.high": "max", "memory.min": "4096", "memory.low": "8192", "memory.oom.group": "0", "cpu.max.burst": "0"}
	c := want.Config
	c.Envs[1].Value = []byte("secret")
	c.Envs = append(c.Envs, &runtimeapi.KeyValue{Key: "VISIBLE", Value: []byte("0")})
	c.Devices = append(c.Devices, &runtimeapi.Device{ContainerPath: "/dev/nvidia0", HostPath: "/dev/nvidia0", Permissions: "rw"})
	c.CDIDevices = append(c.CDIDevices, &runtimeapi.CDIDevice{Name: "nvidia.com/gpu=1"})
	c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/opt/x.so", HostPath: "/opt/x.so", Readonly: true})
	stamp := got.Config.Annotations[protocol.AnnotationApplied]
	c.Annotations[protocol.AnnotationApplied] = stamp
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	applied, err := protocol.ParseApplied(stamp)
	if err != nil || applied.By != "koord-runtime-proxy/test" || applied.Generation != 7 || applied.Set["env[VISIBLE]"] != "set batch" ||
		applied.Base["cpu.quota"] != "150000" || applied.Base["unified/memory.high"] != "900000000" || applied.Set["rdt.class"] != "BE batch" {
		t.Errorf("mark %s, %v", stamp, err)
	}
	if strings.Contains(stamp, "secret") {
		t.Error("a variable's value stands in the mark")
	}
}

// TestMarkGivesTheBaseBack: after a restart the status, with our values in it, leads to the kubelet's.
func TestMarkGivesTheBaseBack(t *testing.T) {
	t.Parallel()
	m := createRequest()
	asked, err := cri.ReadCreateContainer(marshal(t, m))
	if err != nil {
		t.Fatal(err)
	}
	sent, _ := create(t, view("containerd", "v2.0.5"), m, carried())
	status := &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		Id: "c1", Metadata: sent.Config.Metadata, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
		Annotations: sent.Config.Annotations, Resources: &runtimeapi.ContainerResources{Linux: sent.Config.Linux.Resources},
	}}
	c, err := cri.ReadContainerStatus(marshal(t, status))
	if err != nil {
		t.Fatal(err)
	}
	want := &workload.Container{ID: "c1", Name: "app", State: workload.StateRunning, Base: asked.Container().Base, Applied: c.Applied}
	if diff := cmp.Diff(want, c); diff != "" || c.Applied == nil {
		t.Errorf("container (-want +got):\n%s", diff)
	}
	verbose := proto.Clone(status).(*runtimeapi.ContainerStatusResponse)
	verbose.Info = map[string]string{"info": `{"sandboxID":"sb1","runtimeSpec":{"linux":{"cgroupsPath":"/kubepods/podu/c1"},"process":{"oomScoreAdj":100}}}`}
	again, _, err := cri.Container(marshal(t, verbose))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Base, again.Base); diff != "" {
		t.Errorf("base of the verbose status (-want +got):\n%s", diff)
	}
	// A resize leaves no annotation: the ledger's mark is the one that counts.
	status.Status.Resources.Linux.CpuShares = 700
	resized := &protocol.Applied{Set: map[string]string{"cpu.shares": "700 batch"}, Base: map[string]string{"cpu.shares": "2048"}}
	if c, err = cri.ReadContainerStatus(marshal(t, status), resized); err != nil || c.Base.Shares != some(2048) || c.Base.Quota != some(150000) {
		t.Errorf("after a resize: %v, %+v", err, c.Base)
	}
}

func TestCreateChangesNothing(t *testing.T) {
	t.Parallel()
	raw := marshal(t, createRequest())
	r, err := cri.ReadCreateContainer(raw)
	if err != nil {
		t.Fatal(err)
	}
	observed := number(plan.CPUShares, 2)
	observed.Observe = true
	for name, p := range map[string]plan.Plan{"empty": nil, "stands": {number(plan.CPUShares, 1024), number(plan.MemoryOOMGroup, 1)}, "observed": {observed}} {
		patch, _ := cri.Create(view("containerd", "v2.0.5"), p, r, r.Container(), by())
		if patch != nil {
			t.Errorf("%s: %+v", name, patch)
		}
		if got, err := r.Patch(patch); err != nil || !bytes.Equal(got, raw) {
			t.Errorf("%s: the request changes", name)
		}
	}
}

func TestCreateByRuntime(t *testing.T) {
	t.Parallel()
	v1 := view("containerd", "v2.0.5")
	v1.Kernel.Cgroup = node.CgroupV1
	p := plan.Plan{number(plan.CPUShares, 512), number(plan.MemoryHigh, 4096), set(plan.CDIDevice, "a/b=c", plan.Text("a/b=c")), number(plan.OOMScoreAdj, 1)}
	for name, tt := range map[string]struct {
		v    *node.View
		rest string
	}{
		"containerd 2.0": {view("containerd", "v2.0.5"), ""},
		"containerd 1.7": {view("containerd", "1.7.30"), "cdi"},
		"containerd 1.6": {view("containerd", "1.6.39"), "cdi"},
		"containerd 1.5": {view("containerd", "1.5.2"), "memory.high cdi oom_score_adj"},
		"cri-o 1.24":     {view("cri-o", "1.24.0"), "cdi"},
		"cri-o 1.34":     {view("cri-o", "1.34.1"), ""},
		"docker":         {view("docker", "27.3.1"), "memory.high cdi"},
		"cgroup v1":      {v1, "memory.high"},
		"nonsense":       {view("containerd", "-"), "memory.high cdi oom_score_adj"},
	} {
		var names []string
		_, rest := create(t, tt.v, createRequest(), p)
		for i := range rest {
			names = append(names, rest[i].Knob.String())
		}
		if got := strings.Join(names, " "); got != tt.rest {
			t.Errorf("%s: left %q, want %q (%v)", name, got, tt.rest, tt.v.Runtime.Problems)
		}
	}
}

func TestIdleLeavesSharesOut(t *testing.T) {
	t.Parallel()
	p := plan.Plan{number(plan.CPUIdle, 1), number(plan.CPUShares, 2)}
	got, rest := create(t, view("containerd", "v2.0.5"), createRequest(), p)
	l := got.Config.Linux.Resources
	if len(rest) != 0 || l.CpuShares != 0 || l.Unified["cpu.idle"] != "1" || l.CpuQuota != 150000 {
		t.Errorf("%v, left\n%s", l, rest)
	}
	applied, err := protocol.ParseApplied(got.Config.Annotations[protocol.AnnotationApplied])
	if err != nil || applied.Base["cpu.shares"] != "1024" {
		t.Errorf("mark %+v, %v", applied, err)
	}
}

func TestMemoryLimitKeepsTheSwap(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ memory, swap, limit, want int64 }{
		"none stated":  {100, 0, 200, 0},
		"no swap":      {100, 100, 200, 200},
		"some swap":    {100, 150, 200, 250},
		"lower":        {100, 150, 50, 100},
		"unlimited":    {100, 150, -1, -1},
		"any swap":     {100, -1, 200, -1},
		"no limit was": {0, 150, 200, 200},
	} {
		m := createRequest()
		m.Config.Linux.Resources.MemoryLimitInBytes, m.Config.Linux.Resources.MemorySwapLimitInBytes = tt.memory, tt.swap
		got, _ := create(t, view("containerd", "v2.0.5"), m, plan.Plan{number(plan.MemoryLimit, tt.limit)})
		if l := got.Config.Linux.Resources; l.MemoryLimitInBytes != tt.limit || l.MemorySwapLimitInBytes != tt.want {
			t.Errorf("%s: limit %d, swap %d, want %d", name, l.MemoryLimitInBytes, l.MemorySwapLimitInBytes, tt.want)
		}
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	m := &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: "c1", Annotations: map[string]string{"k": "v"},
		Linux: &runtimeapi.LinuxContainerResources{CpuShares: 2048, CpuQuota: 200000, CpuPeriod: 100000, MemoryLimitInBytes: 1 << 30, OomScoreAdj: 5},
	}
	plant(m.ProtoReflect())
	raw := marshal(t, m)
	r, err := cri.ReadUpdateContainer(raw)
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Stated(); r.ID != "c1" || s.OOMScoreAdj.Set || s.Shares != some(2048) || r.Annotations["k"] != "v" {
		t.Errorf("request = %+v", r)
	}
	c := &workload.Container{ID: "c1", Base: mark.Overlay(workload.Resources{CPUs: "0-3"}, r.Stated())}
	v := view("containerd", "v2.0.5")
	p := plan.Plan{number(plan.CPUShares, 2048), number(plan.CPUQuota, 160000), number(plan.MemoryHigh, 4096), number(plan.OOMScoreAdj, 9), set(plan.Env, "A", plan.Text("b")), number(plan.CPUBvt, 1)}
	patch, rest := cri.Update(v, p, r, c, by())
	if len(rest) != 3 || rest[0].Knob != plan.OOMScoreAdj {
		t.Errorf("left\n%s", rest)
	}
	out, err := r.Patch(patch)
	if err != nil {
		t.Fatal(err)
	}
	var got runtimeapi.UpdateContainerResourcesRequest
	if err := proto.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	m.Linux.CpuQuota, m.Linux.Unified = 160000, map[string]string{"memory.high": "4096"}
	m.Annotations[protocol.AnnotationApplied] = got.Annotations[protocol.AnnotationApplied]
	if diff := cmp.Diff(m, &got, protocmp.Transform()); diff != "" || got.Annotations[protocol.AnnotationApplied] == "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if patch, rest := cri.Update(v, plan.Plan{number(plan.CPUShares, 2048)}, r, c, by()); patch != nil || len(rest) != 0 {
		t.Errorf("what stands is not repeated: %+v, %v", patch, rest)
	}
	if patch, rest := cri.Update(view("cri-o", "1.35.0"), plan.Plan{number(plan.MemoryHigh, 1)}, r, c, by()); patch != nil || len(rest) != 1 {
		t.Errorf("CRI-O 1.35 drops unified of updates: %+v, %v", patch, rest)
	}
	if patch, _ := cri.Update(view("cri-o", "1.36.0"), plan.Plan{number(plan.CPUIdle, 1)}, r, c, by()); patch == nil || patch.Resources.Shares != some(0) {
		t.Errorf("shares of an idle group: %+v", patch)
	}
}

func TestCgroup(t *testing.T) {
	t.Parallel()
	for _, tt := range [][4]string{
		{"containerd", "/kubepods/podu", "c1", "/kubepods/podu/c1"},
		{"containerd", "/k.slice/k-podu.slice", "c1", "/k.slice/k-podu.slice/cri-containerd-c1.scope"},
		{"cri-o", "/kubepods/podu", "c1", "/kubepods/podu/crio-c1"},
		{"cri-o", "/k.slice", "c1", "/k.slice/crio-c1.scope"},
		{"docker", "/k.slice", "c1", "/k.slice/docker-c1.scope"},
		{"docker", "/kubepods/podu", "c1", "/kubepods/podu/c1"},
		{"other", "/kubepods/podu", "c1", ""},
		{"containerd", "", "c1", ""},
		{"containerd", "/kubepods", "..", ""},
		{"containerd", "/kubepods", "a/b", ""},
	} {
		if got := cri.Cgroup(tt[0], tt[1], tt[2]); got != tt[3] {
			t.Errorf("%q: got %q", tt, got)
		}
	}
}
