// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kubelet

import (
	"fmt"
	"hash/fnv"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podValues is what kubelet writes to a pod's cgroup.
// Source: kubelet cm.ResourceConfigForPod.
func podValues(d podDemand) values {
	cpu, memory := d.sum.cpu.withOverhead(d.overhead.cpu), d.sum.memory.withOverhead(d.overhead.memory)
	shares, quota := cpuShares(cpu.request), cpuQuota(cpu.limit, d.period)
	v := values{shares: &shares, period: d.period}
	switch d.qos() {
	case Guaranteed:
		v.quota, v.memory = &quota, &memory.limit
	case Burstable:
		if d.allCPULimits {
			v.quota = &quota
		}
		if d.allMemoryLimit {
			v.memory = &memory.limit
		}
	case BestEffort:
		shares = 2
	}
	return v
}

// linuxResources is kubelet's translation of one demand for CRI.
// Source: kuberuntime calculateLinuxResources.
func (k *Kubelet) linuxResources(d demand, period int64) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{
		CpuShares:          cpuShares(d.cpu.request),
		CpuQuota:           cpuQuota(d.cpu.limit, period),
		CpuPeriod:          period,
		MemoryLimitInBytes: d.memory.limit,
	}
	if k.groups.tree.V2() {
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

// containerResources adds what only containers have: oom_score_adj and no swap.
// Source: kuberuntime generateLinuxContainerResources.
func (k *Kubelet) containerResources(p Pod, class QoS, d demand) *runtimeapi.LinuxContainerResources {
	r := k.linuxResources(d, p.quotaPeriod())
	r.OomScoreAdj = oomScoreAdj(class, p.NodeCritical, d.memory.request, k.options.MemoryCapacity)
	if k.swap {
		if k.groups.tree.V2() {
			r.Unified["memory.swap.max"] = "0"
		} else {
			r.MemorySwapLimitInBytes = r.MemoryLimitInBytes
		}
	}
	return r
}

// overheadResources is an empty message where the pod has no overhead, as in kubelet.
func (k *Kubelet) overheadResources(p Pod, d podDemand) *runtimeapi.LinuxContainerResources {
	if len(p.Overhead) == 0 {
		return &runtimeapi.LinuxContainerResources{}
	}
	return k.linuxResources(d.overhead, d.period)
}

func (k *Kubelet) sandboxConfig(p Pod, d podDemand, group groupName, attempt uint32) *runtimeapi.PodSandboxConfig {
	labels := map[string]string{}
	maps.Copy(labels, p.Labels)
	maps.Copy(labels, identity(p))
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: p.Name, Namespace: p.namespace(), Uid: p.UID, Attempt: attempt,
		},
		LogDirectory: filepath.Join(k.options.LogDir, p.namespace()+"_"+p.Name+"_"+p.UID),
		Labels:       labels,
		Annotations:  maps.Clone(p.Annotations),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: group.path(k.groups.driver),
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: k.namespaces(),
				Privileged:       p.Privileged,
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
			Overhead:  k.overheadResources(p, d),
			Resources: k.linuxResources(d.sum, d.period),
		},
	}
}

func (k *Kubelet) containerConfig(p Pod, c Container, class QoS, d demand, restarts uint32) *runtimeapi.ContainerConfig {
	labels := identity(p)
	labels["io.kubernetes.container.name"] = c.Name
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: restarts},
		Image:    &runtimeapi.ImageSpec{Image: k.options.Image, UserSpecifiedImage: k.options.Image},
		Command:  c.Command,
		Labels:   labels,
		Annotations: map[string]string{
			"io.kubernetes.container.hash":                     hash(c),
			"io.kubernetes.container.restartCount":             strconv.Itoa(int(restarts)),
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.pod.terminationGracePeriod":         "30",
		},
		LogPath: filepath.Join(c.Name, strconv.Itoa(int(restarts))+".log"),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       k.containerResources(p, class, d),
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: k.namespaces(), Privileged: p.Privileged},
		},
	}
	config.Linux.Resources.CpusetCpus, config.Linux.Resources.CpusetMems = c.CPUs, c.Mems
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: name, Value: []byte(c.Env[name])})
	}
	for _, m := range c.Mounts {
		config.Mounts = append(config.Mounts, &runtimeapi.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, Readonly: true})
	}
	for _, name := range c.CDIDevices {
		config.CDIDevices = append(config.CDIDevices, &runtimeapi.CDIDevice{Name: name})
	}
	return config
}

// identity is the labels by which kubelet finds a pod in the runtime.
func identity(p Pod) map[string]string {
	return map[string]string{
		"io.kubernetes.pod.name":      p.Name,
		"io.kubernetes.pod.namespace": p.namespace(),
		"io.kubernetes.pod.uid":       p.UID,
	}
}

// namespaces of a pod, on the node's network where the lab needs no CNI.
func (k *Kubelet) namespaces() *runtimeapi.NamespaceOption {
	network := runtimeapi.NamespaceMode_NODE
	if k.options.PodNetwork {
		network = runtimeapi.NamespaceMode_POD
	}
	return &runtimeapi.NamespaceOption{
		Network: network,
		Pid:     runtimeapi.NamespaceMode_CONTAINER,
		Ipc:     runtimeapi.NamespaceMode_POD,
	}
}

// hash stands for kubelet's hash of the container's spec: eight hex digits that
// change with it.
func hash(c Container) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%+v", c)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}
