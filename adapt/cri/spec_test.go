// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// containerd 1.6 has no resources in a status: what its spec has counts, less what is ours. Where the status has them, they
// count alone.
func TestResourcesOfTheSpec(t *testing.T) {
	t.Parallel()
	status := &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{Id: "c1", Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		Info: map[string]string{"info": `{"sandboxID":"s","runtimeSpec":{"process":{"oomScoreAdj":985},"linux":{"cgroupsPath":"/kubepods/burstable/podu/c1","resources":{
			"devices":[{"allow":false,"access":"rwm"}],"memory":{"limit":1073741824,"swap":1073741824},
			"cpu":{"shares":512,"quota":-1,"period":100000,"cpus":"0-3","mems":"0"},"unified":{"cpu.max.burst":"50000","memory.high":"7"}}}}}`},
	}
	ours := &protocol.Applied{
		Set: map[string]string{"cpu.quota": "-1 cpuset", "cpu.burst": "50000 cpu-burst"}, Base: map[string]string{"cpu.quota": "50000"},
	}
	want := workload.Resources{
		Shares: unit.Some(512), Quota: unit.Some(50000), Period: unit.Some(100000), CPUs: "0-3", Mems: "0", MemoryLimit: unit.Some(1 << 30),
		OOMScoreAdj: unit.Some(985), Unified: map[string]string{"memory.high": "7"},
	}
	c, _, err := cri.Container(marshal(t, status), ours)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, c.Base); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	status.Status.Resources = &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpuShares: 4}}
	if c, _, err = cri.Container(marshal(t, status), ours); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(workload.Resources{Shares: unit.Some(4), OOMScoreAdj: unit.Some(985)}, c.Base); diff != "" {
		t.Errorf("with resources in the status (-want +got):\n%s", diff)
	}
}
