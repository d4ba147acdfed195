// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package scenario

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	containerpolicy "github.com/koord-rt/koord-rt/policy/container"
)

// CRI runs the path through the proxy: groups, pod level, then per container the kubelet's request, read and changed as the proxy
// does, runc, and what the request could not carry.
func (f *Fake) CRI(ctx context.Context, t testing.TB) {
	t.Helper()
	view := *f.Paper.View
	view.Runtime = cri.Runtime("containerd", "v2.4.2")
	view.Runtime.Weight = unit.Quadratic
	f.groups(ctx, t)
	for i := range f.Paper.Pods {
		pp := &f.Paper.Pods[i]
		f.do(ctx, t, pp.Plan)
		handler := pp.Pod.RuntimeHandler
		run, err := cri.ReadRunPodSandbox(encode(t, &runtimeapi.RunPodSandboxRequest{Config: pp.Desc.Sandbox, RuntimeHandler: handler}))
		if err != nil {
			t.Fatal(err)
		}
		pod := run.Pod(pp.Pod.ID, handler)
		for n, c := range pp.Containers {
			r, err := cri.ReadCreateContainer(encode(t, &runtimeapi.CreateContainerRequest{
				PodSandboxId: pp.Pod.ID, Config: pp.Desc.Containers[n], SandboxConfig: pp.Desc.Sandbox,
			}))
			if err != nil {
				t.Fatal(err)
			}
			asked := r.Container()
			asked.ID, asked.Cgroup = c.ID, c.Cgroup
			wanted, _ := containerpolicy.Decide(&view, pod, asked)
			patch, rest := cri.Create(&view, wanted, r, asked, mark.By{Generation: 1, Program: "koord-runtime-proxy", Version: "test"})
			changed, err := r.Patch(patch)
			if err != nil {
				t.Fatal(err)
			}
			f.runc(t, pp.Pod, c, f.ofCRI(t, c, changed))
			f.do(ctx, t, rest)
		}
	}
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// ofCRI is what containerd makes of a request.
func (f *Fake) ofCRI(t testing.TB, c *workload.Container, raw []byte) specified {
	t.Helper()
	var r runtimeapi.CreateContainerRequest
	if err := proto.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	res := r.GetConfig().GetLinux().GetResources()
	out := specified{resources: nri.Resources(resources(res)), oom: unit.Some(res.GetOomScoreAdj()), given: map[string]string{}}
	// containerd gives memory and swap one limit; the tree of a container that we leave alone has it as it was made.
	out.swap = res.GetMemoryLimitInBytes() > 0 && res.GetMemoryLimitInBytes() != c.Base.MemoryLimit.V
	for _, e := range r.GetConfig().GetEnvs() {
		out.given["@env "+e.GetKey()] = string(e.GetValue())
	}
	for _, d := range r.GetConfig().GetDevices() {
		out.given["@device "+d.GetContainerPath()] = f.node(d.GetHostPath())
	}
	return out
}

// node is the device node at a path of the machine.
func (f *Fake) node(path string) string {
	for _, d := range f.Paper.scenario.Devices {
		if d.Path == path {
			return fmt.Sprintf("c %d:%d", d.Major, d.Minor)
		}
	}
	return "none"
}
