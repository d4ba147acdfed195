// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/protocol"
)

const podSlice = "kubepods-burstable-podu_1.slice"

// marshal is the message's bytes.
func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// plant puts unknown fields into a message and into every message inside it.
func plant(m protoreflect.Message) int {
	unknown := protowire.AppendTag(nil, 1999, protowire.BytesType)
	unknown = protowire.AppendString(unknown, "kept")
	unknown = protowire.AppendTag(unknown, 2000, protowire.VarintType)
	m.SetUnknown(protowire.AppendVarint(unknown, 7))
	n := 1
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() || f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				n += plant(v.List().Get(i).Message())
			}
		default:
			n += plant(v.Message())
		}
		return true
	})
	return n
}

func sandboxConfig() *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Uid: "u-1", Namespace: "default", Attempt: 1},
		Hostname: "web", LogDirectory: "/var/log/pods/web", DnsConfig: &runtimeapi.DNSConfig{Servers: []string{"10.0.0.10"}},
		Labels:      map[string]string{protocol.LabelQoSClass: "LS", "app": "web"},
		Annotations: map[string]string{protocol.AnnotationCPUBurst: `{"policy":"auto"}`},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: "/kubepods.slice/kubepods-burstable.slice/" + podSlice, Sysctls: map[string]string{"net.core.somaxconn": "1024"},
			Overhead:  &runtimeapi.LinuxContainerResources{CpuShares: 10, MemoryLimitInBytes: 24},
			Resources: &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 20000, CpuShares: 100, MemoryLimitInBytes: 1000},
		},
	}
}

// createRequest is like one of a kubelet: 40 variables, 8 mounts.
func createRequest() *runtimeapi.CreateContainerRequest {
	c := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: 2}, Image: &runtimeapi.ImageSpec{Image: "web:1"},
		Command: []string{"/bin/web"}, Args: []string{"-v", "1"}, WorkingDir: "/", LogPath: "app/2.log",
		Devices:     []*runtimeapi.Device{{ContainerPath: "/dev/fuse", HostPath: "/dev/fuse", Permissions: "rw"}},
		Labels:      map[string]string{"io.kubernetes.container.name": "app"},
		Annotations: map[string]string{"io.kubernetes.container.hash": "abc", "io.kubernetes.container.restartCount": "2"},
		CDIDevices:  []*runtimeapi.CDIDevice{{Name: "vendor.com/net=a"}},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{
				CpuPeriod: 100000, CpuQuota: 150000, CpuShares: 1024, MemoryLimitInBytes: 1 << 30, MemorySwapLimitInBytes: 1 << 30,
				OomScoreAdj: 900, CpusetCpus: "0-3", Unified: map[string]string{"memory.high": "900000000", "memory.oom.group": "1"},
				HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 0}},
			},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{RunAsUser: &runtimeapi.Int64Value{Value: 1000}},
		},
	}
	for i := range 40 {
		c.Envs = append(c.Envs, &runtimeapi.KeyValue{Key: fmt.Sprintf("WEB_SERVICE_%d", i), Value: []byte("tcp://10.0.0.1:80")})
	}
	for i := range 8 {
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: fmt.Sprintf("/data/%d", i), HostPath: fmt.Sprintf("/var/lib/kubelet/pods/u-1/volumes/%d", i), Readonly: i%2 == 0})
	}
	return &runtimeapi.CreateContainerRequest{PodSandboxId: "sb1", Config: c, SandboxConfig: sandboxConfig()}
}

// wholePatch changes something in every part that can be changed.
func wholePatch() *cri.ContainerPatch {
	return &cri.ContainerPatch{
		Resources: cri.ResourcesPatch{
			Quota: some(-1), Shares: some(512), Memory: some(1 << 31), Swap: some(1 << 32), OOMScoreAdj: some(-998), Period: some(50000),
			CPUs: "4-5", Mems: "0", Unified: []cri.Pair{{Key: "memory.high", Value: "max"}, {Key: "memory.min", Value: "4096"}},
		},
		Envs:         []cri.Pair{{Key: "WEB_SERVICE_3", Value: "new"}, {Key: "VISIBLE", Value: "1"}},
		Mounts:       []cri.Mount{{Path: "/data/1", Host: "/other", ReadOnly: true, Propagation: 1}, {Path: "/lib/x.so", Host: "/opt/x.so"}},
		Devices:      []cri.Device{{Path: "/dev/nvidia0", Host: "/dev/nvidia0", Permissions: "rwm"}},
		CDIDevices:   []string{"vendor.com/net=a", "nvidia.com/gpu=1"},
		Labels:       []cri.Pair{{Key: "l", Value: "1"}},
		Annotations:  []cri.Pair{{Key: protocol.AnnotationApplied, Value: `{"gen":1}`}, {Key: "io.kubernetes.container.hash", Value: "other"}},
		CgroupParent: "/kubepods.slice/x.slice",
	}
}

// change is the same patch on the generated type, in the way of its authors: the reference.
func change(r *runtimeapi.CreateContainerRequest, p *cri.ContainerPatch) {
	if r.Config == nil {
		r.Config = &runtimeapi.ContainerConfig{}
	}
	c := r.Config
	if c.Linux == nil {
		c.Linux = &runtimeapi.LinuxContainerConfig{}
	}
	if c.Linux.Resources == nil {
		c.Linux.Resources = &runtimeapi.LinuxContainerResources{}
	}
	changeResources(c.Linux.Resources, &p.Resources)
	changeEnvs(c, p.Envs)
	for _, m := range p.Mounts {
		set := func(x *runtimeapi.Mount) {
			x.HostPath, x.Readonly, x.Propagation = m.Host, m.ReadOnly, runtimeapi.MountPropagation(m.Propagation)
		}
		each(&c.Mounts, &runtimeapi.Mount{ContainerPath: m.Path}, func(x *runtimeapi.Mount) bool { return x.ContainerPath == m.Path }, set)
	}
	for _, d := range p.Devices {
		set := func(x *runtimeapi.Device) { x.HostPath, x.Permissions = d.Host, d.Permissions }
		each(&c.Devices, &runtimeapi.Device{ContainerPath: d.Path}, func(x *runtimeapi.Device) bool { return x.ContainerPath == d.Path }, set)
	}
	for _, name := range p.CDIDevices {
		each(&c.CDIDevices, &runtimeapi.CDIDevice{Name: name}, func(x *runtimeapi.CDIDevice) bool { return x.Name == name }, func(*runtimeapi.CDIDevice) {})
	}
	c.Labels, c.Annotations = withPairs(c.Labels, p.Labels), withPairs(c.Annotations, p.Annotations)
	if r.SandboxConfig == nil {
		r.SandboxConfig = &runtimeapi.PodSandboxConfig{}
	}
	if r.SandboxConfig.Linux == nil {
		r.SandboxConfig.Linux = &runtimeapi.LinuxPodSandboxConfig{}
	}
	r.SandboxConfig.Linux.CgroupParent = p.CgroupParent
}

func changeEnvs(c *runtimeapi.ContainerConfig, envs []cri.Pair) {
	for _, kv := range envs {
		set := func(x *runtimeapi.KeyValue) { x.Value = []byte(kv.Value) }
		each(&c.Envs, &runtimeapi.KeyValue{Key: kv.Key}, func(x *runtimeapi.KeyValue) bool { return x.Key == kv.Key }, set)
	}
}

func changeResources(l *runtimeapi.LinuxContainerResources, r *cri.ResourcesPatch) {
	l.CpuPeriod, l.CpuQuota, l.CpuShares = r.Period.V, r.Quota.V, r.Shares.V
	l.MemoryLimitInBytes, l.MemorySwapLimitInBytes, l.OomScoreAdj = r.Memory.V, r.Swap.V, r.OOMScoreAdj.V
	l.CpusetCpus, l.CpusetMems = r.CPUs, r.Mems
	l.Unified = withPairs(l.Unified, r.Unified)
}

// each sets every member that matches, or a new one.
func each[T any](list *[]*T, fresh *T, match func(*T) bool, set func(*T)) {
	if !slices.ContainsFunc(*list, match) {
		*list = append(*list, fresh)
	}
	for _, x := range *list {
		if match(x) {
			set(x)
		}
	}
}

func withPairs(m map[string]string, pairs []cri.Pair) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	for _, kv := range pairs {
		m[kv.Key] = kv.Value
	}
	return m
}

// split sends a request's messages in two parts each, as protobuf allows.
func split(t testing.TB, m *runtimeapi.CreateContainerRequest) []byte {
	t.Helper()
	half := &runtimeapi.CreateContainerRequest{Config: &runtimeapi.ContainerConfig{
		Envs:  []*runtimeapi.KeyValue{{Key: "WEB_SERVICE_3", Value: []byte("early")}},
		Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpuShares: 3, CpuQuota: 4}},
	}, SandboxConfig: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "early"}}}
	return bytes.Join([][]byte{marshal(t, half), marshal(t, m)}, nil)
}
