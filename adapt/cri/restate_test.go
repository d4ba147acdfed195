// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// updates keeps what it was asked to change.
type updates struct {
	fakeRuntime
	asked *runtimeapi.UpdateContainerResourcesRequest
	// silent shows no specification.
	silent bool
}

func (u *updates) ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	info := `{"runtimeSpec":{"linux":{"cgroupsPath":"/kubepods/c1","resources":{"cpu":{"quota":20000,"cpus":"1"},"unified":{"memory.high":"7"}}}}}`
	if u.silent {
		info = "{}"
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: "c1"}, Info: map[string]string{"info": info}}, nil
}

func (u *updates) UpdateContainerResources(_ context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	u.asked = r
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

func TestRestate(t *testing.T) {
	t.Parallel()
	u := &updates{}
	list := serve(t, u)
	says, err := list.Specified(t.Context(), "c1")
	if err != nil || says.Quota != unit.Some(20000) || says.CPUs != "1" || says.Unified["memory.high"] != "7" {
		t.Errorf("specified: %+v, %v", says, err)
	}
	if _, err := serve(t, &updates{silent: true}).Specified(t.Context(), "c1"); !errors.Is(err, cri.ErrUnshown) {
		t.Errorf("a runtime that shows no specification: %v", err)
	}
	set := func(k plan.Knob, v plan.Value) plan.Setting {
		return plan.Setting{Target: plan.Target{Level: plan.LevelContainer, Container: "c1"}, Knob: k, Value: v}
	}
	p := plan.Plan{
		set(plan.CPUQuota, plan.Int(-1)), set(plan.CPUSetCPUs, plan.Text("0-7")), set(plan.MemoryLimit, plan.Int(1<<20)),
		set(plan.CPUBurst, plan.Int(0)), set(plan.MemoryHigh, plan.Int(-1)),
	}
	if err := list.Restate(t.Context(), "c1", p); err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.UpdateContainerResourcesRequest{ContainerId: "c1", Linux: &runtimeapi.LinuxContainerResources{
		CpuQuota: -1, CpusetCpus: "0-7", MemoryLimitInBytes: 1 << 20, Unified: map[string]string{"cpu.max.burst": "0", "memory.high": "max"},
	}}
	if diff := cmp.Diff(want, u.asked, protocmp.Transform()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if err := list.Restate(t.Context(), "c1", plan.Plan{set(plan.RDTClass, plan.Text("BE"))}); err == nil || !strings.Contains(err.Error(), "rdt") {
		t.Errorf("a group of resctrl is in no request: %v", err)
	}
}
