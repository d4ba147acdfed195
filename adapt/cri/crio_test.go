// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// TestCRIORecorded reads what CRI-O 1.36.3 with the cgroupfs manager answered in the lab, of a pod whose infra container was dropped.
func TestCRIORecorded(t *testing.T) {
	t.Parallel()
	var pod runtimeapi.PodSandboxStatusResponse
	var container runtimeapi.ContainerStatusResponse
	p, err := os.ReadFile("testdata/crio-1.36.3/pod.json")
	if err == nil {
		err = protojson.Unmarshal(p, &pod)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := os.ReadFile("testdata/crio-1.36.3/container.json")
	if err == nil {
		err = protojson.Unmarshal(c, &container)
	}
	if err != nil {
		t.Fatal(err)
	}
	const group = "/koordrt-krt2195803654/kubepods/burstable/pod5c1e1000-0000-4000-8000-77641c964ebf"
	base := workload.Resources{Shares: unit.Some(204), Quota: unit.Some(50000), Period: unit.Some(100000), MemoryLimit: unit.Some(128 << 20)}
	gotPod, err := cri.Pod(marshal(t, &pod))
	if err != nil {
		t.Fatal(err)
	}
	if gotPod.Cgroup != group || gotPod.KubeQoS != protocol.KubeBurstable || gotPod.FullName() != "default/dump-ls" || gotPod.PID != 0 {
		t.Errorf("pod %+v", gotPod)
	}
	if diff := cmp.Diff(base, gotPod.Base); diff != "" {
		t.Errorf("base of the pod (-want +got):\n%s", diff)
	}
	got, sandbox, err := cri.Container(marshal(t, &container))
	if err != nil {
		t.Fatal(err)
	}
	if sandbox != pod.Status.Id || got.Cgroup != group+"/crio-"+container.Status.Id || got.Cgroup != cri.Cgroup("cri-o", group, container.Status.Id) ||
		got.PID != 15721 || got.State != workload.StateRunning {
		t.Errorf("container %+v of sandbox %s", got, sandbox)
	}
	base.OOMScoreAdj = unit.Some(998)
	if diff := cmp.Diff(base, got.Base); diff != "" {
		t.Errorf("base of the container (-want +got):\n%s", diff)
	}
}
