// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kubelet

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// DescribeOptions are the facts of a node that exists only on paper.
type DescribeOptions struct {
	V2             bool   // required: cgroup version 2, else 1
	Driver         Driver // required
	MemoryCapacity int64  // required: bytes
}

// Description is all that kubelet would write and send for a pod, for tests without a
// runtime.
type Description struct {
	QoS                   QoS
	Cgroup, QoSCgroup     string // below the cgroup root
	Sandbox               *runtimeapi.PodSandboxConfig
	Containers            []*runtimeapi.ContainerConfig
	Shares, Quota, Memory *int64 // of the pod's cgroup, nil where kubelet leaves it alone
	Period                int64  // of the Quota, in µs
}

// Describe computes a pod's Description. It touches nothing.
func Describe(p Pod, o DescribeOptions) (Description, error) {
	if err := p.Validate(); err != nil {
		return Description{}, err
	}
	d, err := podDemandOf(p)
	if err != nil {
		return Description{}, err
	}
	k := &Kubelet{options: Options{MemoryCapacity: o.MemoryCapacity}, groups: groups{driver: o.Driver}, root: groupName{"kubepods"}}
	if o.V2 {
		k.groups.tree = cgroups.Tree{Unified: "/sys/fs/cgroup"}
	}
	v, group := podValues(d), k.podGroup(p, d.qos())
	out := Description{
		QoS: d.qos(), Cgroup: group.path(o.Driver), QoSCgroup: group[:len(group)-1].path(o.Driver),
		Sandbox: k.sandboxConfig(p, d, group, 0),
		Shares:  v.shares, Quota: v.quota, Memory: v.memory, Period: v.period,
	}
	for i, c := range p.Containers {
		out.Containers = append(out.Containers, k.containerConfig(p, c, d.qos(), d.containers[i], 0))
	}
	return out, nil
}
