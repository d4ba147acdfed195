// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// Values that the kernel must hold for the containers below; see lsPod and bePod.
const (
	quotaMicros = 100_000  // one CPU
	burstMicros = 100_000  // 1000 % of one CPU, held at the quota
	batchMemory = 64 << 20 // bytes
)

// classLabel names a pod's QoS class.
const classLabel = "koordinator.sh/qosClass"

// pod number i of a benchmark with n containers: LS and BE by turns.
func pod(prefix string, i, n int) kubelet.Pod {
	if i%2 == 0 {
		return lsPod(prefix, i, n)
	}
	return bePod(prefix, i, n)
}

func named(prefix, class string, i, n int) kubelet.Pod {
	p := kubelet.Pod{
		Name: fmt.Sprintf("%s-%s-%d", prefix, strings.ToLower(class), i), UID: fmt.Sprintf("%s-4000-8000-%012d", prefix, i),
		Labels:      map[string]string{classLabel: class, "app": prefix, "pod-template-hash": "7c5ddbdf54"},
		Annotations: map[string]string{"kubernetes.io/config.source": "api"},
	}
	for c := range n {
		p.Containers = append(p.Containers, kubelet.Container{Name: fmt.Sprintf("c%d", c), Env: map[string]string{"POD": p.Name, "ZONE": "a"}})
	}
	return p
}

// lsPod gets burst and, where the kernel has it, memory QoS.
func lsPod(prefix string, i, n int) kubelet.Pod {
	p := named(prefix, "LS", i, n)
	for c := range p.Containers {
		p.Containers[c].Resources = lsResources()
	}
	return p
}

func lsResources() kubelet.Resources {
	return kubelet.Resources{
		Requests: map[string]kubelet.Quantity{"cpu": "1m", "memory": "16Mi"},
		Limits:   map[string]kubelet.Quantity{"cpu": "1", "memory": "64Mi"},
	}
}

// resized is what an LS container has after a resize of its CPU upwards. Request and limit change, so the runtime is told of
// the pod twice and of the container once, and as often on the way back.
func resized() kubelet.Resources {
	r := lsResources()
	r.Requests["cpu"], r.Limits["cpu"] = "100m", "1500m"
	return r
}

// bePod runs on batch resources: half a CPU requested, one at most, 64 MiB.
func bePod(prefix string, i, n int) kubelet.Pod {
	p := named(prefix, "BE", i, n)
	const amounts = `{"kubernetes.io/batch-cpu":"%d","kubernetes.io/batch-memory":"64Mi"}`
	var specs []string
	for _, c := range p.Containers {
		specs = append(specs, fmt.Sprintf(`%q:{"limits":`+amounts+`,"requests":`+amounts+`}`, c.Name, 1000, 500))
	}
	p.Annotations["node.koordinator.sh/extended-resource-spec"] = `{"containers":{` + strings.Join(specs, ",") + `}}`
	return p
}

// fleet is a containerd with pods that run.
type fleet struct {
	rig  *rig
	pods []*kubelet.Running
}

// startFleet makes pods of perPod containers, without any plugin.
func (b *bench) startFleet(ctx context.Context, r *rig, containers, perPod int) (*fleet, error) {
	n := (containers + perPod - 1) / perPod
	f := &fleet{rig: r, pods: make([]*kubelet.Running, n)}
	b.say("start %d containers in %d pods", containers, n)
	err := parallel(ctx, 4, n, func(ctx context.Context, i int) error {
		size := min(perPod, containers-i*perPod)
		run, err := r.kube.StartPod(ctx, pod("fleet", i, size))
		f.pods[i] = run
		return err
	})
	return f, err
}
