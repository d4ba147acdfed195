// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nri

import (
	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/cgrouppath"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// keyCgroup names the cgroup parent in problems; it is no label or annotation.
const keyCgroup = "cgroup-parent"

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
	dir, err := podDir(p.GetLinux())
	if err != nil {
		pod.Problems = append(pod.Problems, protocol.Problem{Key: keyCgroup, Reason: err.Error()})
		return pod
	}
	pod.Cgroup = dir
	if info, ok := cgrouppath.OfPod(dir); ok {
		pod.KubeQoS, pod.QoSCgroup = info.QoS, info.QoSCgroup
		if pod.UID == "" {
			pod.UID = info.UID
		}
	}
	return pod
}

// podDir prefers the parent that the kubelet asked for; runtimes that do not tell it name the sandbox's own cgroup.
func podDir(l *api.LinuxPodSandbox) (string, error) {
	if parent := l.GetCgroupParent(); parent != "" {
		return cgrouppath.Parent(parent)
	}
	dir, err := cgrouppath.Container(l.GetCgroupsPath())
	if err != nil {
		return "", err
	}
	return cgrouppath.PodDir(dir), nil
}

// podBase is what the kubelet gives the pod's cgroup: the sum of its containers plus the overhead of its runtime class.
func podBase(l *api.LinuxPodSandbox) workload.Resources {
	r := Resources(l.GetPodResources())
	o := Resources(l.GetPodOverhead())
	add(&r.Shares, o.Shares)
	add(&r.Quota, o.Quota)
	add(&r.MemoryLimit, o.MemoryLimit)
	return r
}

// add adds an overhead to a sum. An absent or unlimited sum stays as it is: the pod has no such limit.
func add(sum *unit.Opt, more unit.Opt) {
	if sum.Set && sum.V > 0 && more.V > 0 {
		sum.V += more.V
	}
}

// PodResources is the pod's base after a resize: the kubelet's new resources and overhead.
func PodResources(resources, overhead *api.LinuxResources) workload.Resources {
	return podBase(&api.LinuxPodSandbox{PodResources: resources, PodOverhead: overhead})
}
