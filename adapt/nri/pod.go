// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nri

import (
	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/cgrouppath"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Pod reads a sandbox. A sandbox whose cgroup cannot be placed has no Cgroup and a problem: nothing can be written for
// it, but its containers may still be adjusted.
func Pod(p *api.PodSandbox) *workload.Pod {
	ask, problems := protocol.ParsePod(p.GetLabels(), p.GetAnnotations())
	pod := &workload.Pod{
		ID: p.GetId(), UID: p.GetUid(), Namespace: p.GetNamespace(), Name: p.GetName(),
		RuntimeHandler: p.GetRuntimeHandler(),
		Ask:            ask,
		Problems:       problems,
		PID:            int(p.GetPid()),
		Base:           podBase(p.GetLinux()),
	}
	pod.Place(cgrouppath.Sandbox(p.GetLinux().GetCgroupParent(), p.GetLinux().GetCgroupsPath()))
	return pod
}

// podBase is what the kubelet gives the pod's cgroup: the sum of its containers plus the overhead of its runtime class.
func podBase(l *api.LinuxPodSandbox) workload.Resources {
	r := Resources(l.GetPodResources())
	o := Resources(l.GetPodOverhead())
	r.AddOverhead(&o)
	return r
}

// PodResources is the pod's base after a resize: the kubelet's new resources and overhead.
func PodResources(resources, overhead *api.LinuxResources) workload.Resources {
	return podBase(&api.LinuxPodSandbox{PodResources: resources, PodOverhead: overhead})
}
