// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri_test

import (
	"bytes"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

func some(v int64) unit.Opt { return unit.Some(v) }

func TestReadCreateContainer(t *testing.T) {
	t.Parallel()
	r, err := cri.ReadCreateContainer(marshal(t, createRequest()))
	if err != nil {
		t.Fatal(err)
	}
	if r.Sandbox != "sb1" || r.Attempt != 2 || r.Resources.Swap != 1<<30 {
		t.Errorf("request = %+v", r)
	}
	c := r.Container()
	if len(c.EnvNames) != 40 || c.EnvNames[3] != "WEB_SERVICE_3" {
		t.Errorf("variables = %q", c.EnvNames)
	}
	c.EnvNames = nil
	want := &workload.Container{Name: "app", CDIDevices: []string{"vendor.com/net=a"}, Base: workload.Resources{
		Shares: some(1024), Quota: some(150000), Period: some(100000), CPUs: "0-3", MemoryLimit: some(1 << 30), OOMScoreAdj: some(900),
		Unified: map[string]string{"memory.high": "900000000", "memory.oom.group": "1"},
	}}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("container (-want +got):\n%s", diff)
	}
	sandbox, err := r.SandboxConfig()
	if err != nil {
		t.Fatal(err)
	}
	p := sandbox.Pod("sb1", "runc")
	if p.Class() != protocol.QoSLS || p.KubeQoS != protocol.KubeBurstable || p.UID != "u-1" || p.FullName() != "default/web" || p.Ask.CPUBurst == nil {
		t.Errorf("pod = %+v", p)
	}
	envs, err := r.Envs()
	if err != nil || len(envs) != 40 || envs[0].Value != "tcp://10.0.0.1:80" {
		t.Errorf("variables: %v, %d", err, len(envs))
	}
	annotations, err1 := r.Annotations()
	labels, err2 := r.Labels()
	if err1 != nil || err2 != nil || annotations["io.kubernetes.container.hash"] != "abc" || labels["io.kubernetes.container.name"] != "app" {
		t.Errorf("%v, %v, %v, %v", err1, err2, annotations, labels)
	}
}

func TestReadCreateContainerWithMark(t *testing.T) {
	t.Parallel()
	m := createRequest()
	m.Config.Annotations[protocol.AnnotationApplied] = `{"gen":1,"by":"x","set":{"cpu.shares":"1024 batch"},"base":{"cpu.shares":"2"}}`
	r, err := cri.ReadCreateContainer(marshal(t, m))
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Container(); c.Applied == nil || c.Base.Shares != some(2) || r.Resources.Shares != 1024 {
		t.Errorf("base = %+v", c.Base)
	}
	m.Config.Annotations[protocol.AnnotationApplied] = `{"gen":`
	if r, err := cri.ReadCreateContainer(marshal(t, m)); err != nil || r.Applied != nil {
		t.Errorf("a mark that is none: %v, %v", err, r.Applied)
	}
}

func TestPatchCreateContainer(t *testing.T) {
	t.Parallel()
	full := createRequest()
	planted := createRequest()
	if n := plant(planted.ProtoReflect()); n < 60 {
		t.Fatalf("only %d messages have unknown fields", n)
	}
	for name, raw := range map[string][]byte{
		"kubelet's": marshal(t, full), "unknown fields": marshal(t, planted), "in parts": split(t, planted), "empty": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkPatch(t, raw)
		})
	}
}

// checkPatch holds the patched bytes against the reference's message, unknown fields included.
func checkPatch(t *testing.T, raw []byte) {
	t.Helper()
	var want, got runtimeapi.CreateContainerRequest
	if err := proto.Unmarshal(raw, &want); err != nil {
		return // the runtime refuses it as it is
	}
	r, err := cri.ReadCreateContainer(raw)
	if err != nil {
		t.Fatalf("a good message is refused: %v", err)
	}
	p := wholePatch()
	patched, err := r.Patch(p)
	if err != nil {
		t.Fatalf("a good message cannot be patched: %v", err)
	}
	if err := proto.Unmarshal(patched, &got); err != nil {
		t.Fatalf("patched message: %v", err)
	}
	change(&want, p)
	if !proto.Equal(&want, &got) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(&want, &got, protocmp.Transform()))
	}
	if same, err := r.Patch(&cri.ContainerPatch{}); err != nil || !bytes.Equal(same, raw) {
		t.Errorf("an empty patch changes the message: %v", err)
	}
}

func TestPatchDropsVariables(t *testing.T) {
	t.Parallel()
	r, err := cri.ReadCreateContainer(marshal(t, createRequest()))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := r.Patch(&cri.ContainerPatch{DropEnvs: true, Envs: []cri.Pair{{Key: "WEB_SERVICE_3", Value: "x"}, {Key: "B", Value: ""}}})
	if err != nil {
		t.Fatal(err)
	}
	want := createRequest()
	want.Config.Envs = []*runtimeapi.KeyValue{{Key: "WEB_SERVICE_3", Value: []byte("x")}, {Key: "B"}}
	var got runtimeapi.CreateContainerRequest
	if err := proto.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	whole := marshal(t, createRequest())
	refused := 0
	for n := range whole {
		if _, err := cri.ReadCreateContainer(whole[:n]); err != nil {
			refused++
		}
	}
	if refused < len(whole)-10 {
		t.Errorf("of %d torn messages only %d were refused", len(whole), refused)
	}
	bad := []byte{0x12, 0x03, 0x7a, 0x05, 0x01}
	if _, err := cri.ReadCreateContainer(bad); err == nil {
		t.Error("a length beyond the message was accepted")
	}
}

func FuzzCreateContainer(f *testing.F) {
	small := &runtimeapi.CreateContainerRequest{PodSandboxId: "s", Config: &runtimeapi.ContainerConfig{
		Envs:  []*runtimeapi.KeyValue{{Key: "WEB_SERVICE_3", Value: []byte("a")}},
		Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpuShares: 3, Unified: map[string]string{"memory.high": "1"}}},
	}}
	f.Add(marshal(f, small)) // small: the fuzzer spends a minute on making each find smaller
	f.Add(split(f, small))
	plant(small.ProtoReflect())
	f.Add(marshal(f, small))
	f.Add([]byte{0x12, 0x03, 0x7a, 0x05, 0x01})
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		checkPatch(t, raw)
		if !bytes.Equal(before, raw) {
			t.Error("the request was written to")
		}
		r, err := cri.ReadCreateContainer(raw)
		if err != nil {
			return
		}
		checkReading(t, raw, r)
		sandbox, err := r.SandboxConfig()
		if err == nil {
			sandbox.Pod("id", "runc")
		}
		stamp := r.Applied
		if c := r.Container(); stamp == nil && c.Base.Shares.Set != (r.Resources.Shares != 0) {
			t.Errorf("base %+v of %+v", c.Base, r.Resources)
		}
	})
}

// checkReading holds what was read against the generated type.
func checkReading(t *testing.T, raw []byte, r *cri.CreateContainer) {
	t.Helper()
	var m runtimeapi.CreateContainerRequest
	if proto.Unmarshal(raw, &m) != nil {
		return
	}
	l := m.GetConfig().GetLinux().GetResources()
	want := cri.Resources{
		Period: l.GetCpuPeriod(), Quota: l.GetCpuQuota(), Shares: l.GetCpuShares(), Memory: l.GetMemoryLimitInBytes(),
		Swap: l.GetMemorySwapLimitInBytes(), OOMScoreAdj: l.GetOomScoreAdj(), CPUs: l.GetCpusetCpus(), Mems: l.GetCpusetMems(),
		Unified: l.GetUnified(), Present: l != nil,
	}
	if len(want.Unified) == 0 && len(r.Resources.Unified) == 0 {
		want.Unified = r.Resources.Unified // the generated code makes a map also for a field of the wrong wire type, which it then passes over
	}
	if diff := cmp.Diff(want, r.Resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	if r.Sandbox != m.GetPodSandboxId() || r.Name != m.GetConfig().GetMetadata().GetName() || r.Attempt != m.GetConfig().GetMetadata().GetAttempt() ||
		len(r.EnvNames) != len(m.GetConfig().GetEnvs()) || len(r.CDIDevices) != len(m.GetConfig().GetCDIDevices()) {
		t.Errorf("read %+v of %v", r, &m)
	}
	annotations, err := r.Annotations()
	if err != nil || !maps.Equal(annotations, m.GetConfig().GetAnnotations()) {
		t.Errorf("annotations %v, %v", annotations, err)
	}
	s, err := r.SandboxConfig()
	if c := m.GetSandboxConfig(); err != nil || s.UID != c.GetMetadata().GetUid() || s.CgroupParent != c.GetLinux().GetCgroupParent() || !maps.Equal(s.Labels, c.GetLabels()) {
		t.Errorf("sandbox %+v, %v", s, err)
	}
}

// TestManyParts: a message in very many parts is read in the time of its length, and the request stays as it came.
func TestManyParts(t *testing.T) {
	t.Parallel()
	part := []byte{0x12, 0x06, 0x7a, 0x04, 0x0a, 0x02, 0x18, 0x05} // config{linux{resources{cpu_shares: 5}}}
	raw := bytes.Repeat(part, 400_000)
	r, err := cri.ReadCreateContainer(raw)
	if err != nil || r.Resources.Shares != 5 {
		t.Fatalf("%v, %+v", err, r)
	}
	out, err := r.Patch(&cri.ContainerPatch{Resources: cri.ResourcesPatch{Shares: some(7)}})
	if err != nil || len(out) > len(raw) || !bytes.Equal(raw, bytes.Repeat(part, 400_000)) {
		t.Fatalf("%v, %d bytes", err, len(out))
	}
	if r, err = cri.ReadCreateContainer(out); err != nil || r.Resources.Shares != 7 {
		t.Errorf("%v, %+v", err, r)
	}
}
