// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hook

// MaxMessage is the longest request sent and answer taken, in bytes: what grpc-go servers accept unless told otherwise.
const MaxMessage = 4 << 20

// Pod names a pod sandbox (PodSandboxMetadata).
type Pod struct {
	Name, UID, Namespace string
	Attempt              uint32
}

// Container names a container (ContainerMetadata); ID is empty before it exists.
type Container struct {
	Name    string
	Attempt uint32
	ID      string
}

// Resources are LinuxContainerResources. Zero means "not specified" for every number and text.
type Resources struct {
	// Period and Quota are in µs; a quota of -1 is unlimited.
	Period, Quota int64
	// Shares are CPU shares, 1024 per CPU.
	Shares int64
	// Memory is the limit in bytes.
	Memory int64
	// OOMScoreAdj is -1000..1000.
	OOMScoreAdj int64
	// CPUs and Mems are lists such as "0-3,8".
	CPUs, Mems string
	Hugepages  []Hugepage
	// Unified are cgroup v2 files and what to write to them.
	Unified map[string]string
	// Swap is the limit of memory and swap in bytes.
	Swap int64
}

// Hugepage is a HugepageLimit: a page size such as "2MB" and bytes.
type Hugepage struct {
	Size  string
	Limit uint64
}

// PodRequest is PodSandboxHookRequest.
type PodRequest struct {
	Pod            Pod
	RuntimeHandler string
	Labels         map[string]string
	Annotations    map[string]string
	// CgroupParent is as the kubelet gives it: "/kubepods/burstable/podUID" or "kubepods-burstable-podUID.slice".
	CgroupParent        string
	Overhead, Resources *Resources
}

// PodAnswer is PodSandboxHookResponse. Empty fields say nothing.
type PodAnswer struct {
	Labels, Annotations map[string]string
	CgroupParent        string
	Resources           *Resources
}

// ContainerRequest is ContainerResourceHookRequest.
type ContainerRequest struct {
	Pod                       Pod
	Container                 Container
	Annotations               map[string]string
	Resources, PodResources   *Resources
	PodAnnotations, PodLabels map[string]string
	PodCgroupParent           string
	// Env are the container's variables; they may hold secrets and are for the hook server only, never for a log.
	Env map[string]string
}

// ContainerAnswer is ContainerResourceHookResponse. Empty fields say nothing.
type ContainerAnswer struct {
	Annotations     map[string]string
	Resources       *Resources
	PodCgroupParent string
	Env             map[string]string
}
