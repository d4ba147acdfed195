// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// lifecycleIdleUpdated does to an idle pod what kubelet and runc do later. The kernel refuses a weight while a cgroup is
// idle, so each of these would fail had we made a cgroup idle whose weight they write.
func lifecycleIdleUpdated(r *rig) {
	ctx := r.t.Context()
	r.up(standard, nil)
	pod := idlePod("idle")
	pod.Containers = append(pod.Containers, kubelet.Container{Name: "second"})
	run, err := r.kube.RunPod(ctx, pod)
	if err != nil {
		r.t.Fatal(err)
	}
	r.cleanPod(run)
	start := func(run *kubelet.Running, container string) {
		r.t.Helper()
		if err := r.kube.StartContainer(ctx, run, container); err != nil {
			r.t.Fatalf("start %s/%s: %v", run.Pod.Name, container, err)
		}
	}
	// What kubelet asks of a BestEffort container: the least shares. CPU manager and memory manager say more.
	update := func(run *kubelet.Running, container string) {
		r.t.Helper()
		for _, res := range []*runtimeapi.LinuxContainerResources{
			{CpuShares: 2}, {CpuShares: 2, CpuPeriod: 100000, CpuQuota: 50000, CpusetCpus: allCPUs(), MemoryLimitInBytes: 96 << 20}, {CpuShares: 2, CpuPeriod: 100000, CpuQuota: -1},
		} {
			if err := r.host.CRI().UpdateContainer(ctx, run.Containers[container], res); err != nil {
				r.t.Errorf("update of %s/%s to %v: %v", run.Pod.Name, container, res, err)
			}
		}
		weight := map[bool]string{false: " cpu.shares=2", true: " cpu.weight=1"}[r.tree.V2()]
		r.now(run, []string{container + weight})
	}
	start(run, "main")
	r.now(run, wants("idle", ""))
	update(run, "main")

	other := r.pod(idlePod("idle-other"))
	r.now(other, wants("idle", ""))
	old, err := r.kube.NewSandbox(ctx, other)
	if err != nil {
		r.t.Fatalf("another sandbox for an idle pod: %v", err)
	}
	start(other, "main")
	if err := r.host.CRI().RemovePod(ctx, old); err != nil {
		r.t.Error(err)
	}
	start(run, "second")
	update(run, "main")
	update(run, "second")
	update(other, "main")
	// Kubelet writes the weight of the directory of the class again, once a minute and after its restart.
	if err := r.kube.UpdateQoS(); err != nil {
		r.t.Errorf("kubelet's values of the QoS directories beside idle pods: %v", err)
	}
	if r.driver == kubelet.Systemd {
		r.reload()
	}
	both := []string{"second cpu.idle=0", "second @sched=5"}
	r.standing(time.Second, func() error {
		for pod, want := range map[*kubelet.Running][]string{run: append(both, wants("idle", "")...), other: wants("idle", "")} {
			if err := r.differs(pod, want); err != nil {
				return err
			}
		}
		return nil
	})
}
