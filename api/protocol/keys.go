// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

// Domains of the keys below.
const (
	DomainKoordinator = "koordinator.sh/"
	DomainOwn         = "koord-rt.dev/"
)

// Pod labels read on the node.
const (
	// LabelQoSClass holds LSE, LSR, LS, BE or SYSTEM.
	LabelQoSClass = "koordinator.sh/qosClass"
	// LabelPriority holds the sub-priority, an integer.
	LabelPriority = "koordinator.sh/priority"
	// LabelPriorityClass holds koord-prod, koord-mid, koord-batch or koord-free.
	LabelPriorityClass = "koordinator.sh/priority-class"
	// LabelEvictionEnabled "true" lets threshold eviction touch the pod.
	LabelEvictionEnabled = "koordinator.sh/eviction-enabled"
	// LabelCoreSchedGroupID names the core-scheduling group.
	LabelCoreSchedGroupID = "koordinator.sh/core-sched-group-id"
	// LabelCoreSchedPolicy is "", none or exclusive.
	LabelCoreSchedPolicy = "koordinator.sh/core-sched-policy"
	// LabelGPUIsolationProvider is HAMi-core or empty.
	LabelGPUIsolationProvider = "koordinator.sh/gpu-isolation-provider"
	// LabelSkipHookServer "true" keeps the CRI proxy's hooks away from the pod.
	LabelSkipHookServer = "runtimeproxy.koordinator.sh/skip-hookserver"
)

// Pod annotations read on the node.
const (
	AnnotationResourceStatus   = "scheduling.koordinator.sh/resource-status"
	AnnotationDeviceAllocated  = "scheduling.koordinator.sh/device-allocated"
	AnnotationCPUBurst         = "koordinator.sh/cpuBurst"
	AnnotationCPUQOS           = "koordinator.sh/cpuQOS"
	AnnotationMemoryQOS        = "koordinator.sh/memoryQOS"
	AnnotationBlkIOQOS         = "koordinator.sh/blkioQOS"
	AnnotationNetworkQOS       = "koordinator.sh/networkQOS"
	AnnotationEvictionPolicy   = "koordinator.sh/eviction-policy"
	AnnotationEvictionPriority = "koordinator.sh/eviction-priority"
	AnnotationOOMScoreAdj      = "koordinator.sh/oom-score-adj"
	AnnotationOOMScoreAdjSpec  = "koordinator.sh/oom-score-adj-spec"
	AnnotationResctrl          = "node.koordinator.sh/resctrl"
	AnnotationExtendedResource = "node.koordinator.sh/extended-resource-spec"
)

// Annotations and labels of the Node and NodeResourceTopology objects.
const (
	AnnotationCPUTopology        = "node.koordinator.sh/cpu-topology"
	AnnotationCPUBasicInfo       = "node.koordinator.sh/cpu-basic-info"
	AnnotationPodCPUAllocs       = "node.koordinator.sh/pod-cpu-allocs"
	AnnotationCPUSharedPools     = "node.koordinator.sh/cpu-shared-pools"
	AnnotationBECPUSharedPools   = "node.koordinator.sh/be-cpu-shared-pools"
	AnnotationNodeReservation    = "node.koordinator.sh/reservation"
	AnnotationSystemQoSResource  = "node.koordinator.sh/system-qos-resource"
	AnnotationCPUManagerPolicy   = "kubelet.koordinator.sh/cpu-manager-policy"
	AnnotationNormalizationRatio = "node.koordinator.sh/cpu-normalization-ratio"
	AnnotationAmplificationRatio = "node.koordinator.sh/resource-amplification-ratio"
	AnnotationRawAllocatable     = "node.koordinator.sh/raw-allocatable"
	AnnotationColocationStrategy = "node.koordinator.sh/colocation-strategy"
	AnnotationNetworkBandwidth   = "node.koordinator.sh/network-bandwidth"
	AnnotationOriginExtended     = "node.koordinator.sh/originExtendedAllocatable"
	AnnotationThirdPartyAllocs   = "node.koordinator.sh/thirdPartyAllocations"
	LabelNormalizationEnabled    = "node.koordinator.sh/cpu-normalization-enabled"
	LabelNUMAReservation         = "node.koordinator.sh/enable-numa-reservation"
	LabelCPUReclaimRatio         = "node.koordinator.sh/cpu-reclaim-ratio"
	LabelMemoryReclaimRatio      = "node.koordinator.sh/memory-reclaim-ratio"
	LabelMidStaticCPUReserved    = "node.koordinator.sh/mid-static-cpu-reserved-ratio"
	LabelMidStaticMemoryReserved = "node.koordinator.sh/mid-static-memory-reserved-ratio"
	LabelGPUVendor               = "node.koordinator.sh/gpu-vendor"
	LabelGPUModel                = "node.koordinator.sh/gpu-model"
	LabelGPUDriverVersion        = "node.koordinator.sh/gpu-driver-version"
	LabelHAMiVGPUNode            = "hami.io/vgpu-node"
	LabelDeprecatedGPUDriver     = "kubernetes.io/gpu-driver"
	LabelDeprecatedGPUModel      = "kubernetes.io/gpu-model"
	GPUIsolationHAMi             = "HAMi-core"
	// GPUIsolationMPS is ours: NVIDIA's Multi-Process Service with a share per container.
	GPUIsolationMPS          = "MPS"
	CoreSchedPolicyGroup     = ""
	CoreSchedPolicyNone      = "none"
	CoreSchedPolicyExclusive = "exclusive"
)

// Keys of our own.
const (
	// KeyOptOut is a pod annotation or label: "true" leaves the pod alone altogether, a comma list of feature names
	// leaves it alone in these.
	KeyOptOut = "koord-rt.dev/opt-out"
	// AnnotationRequired is a comma list of features without which the pod must not start (fail-closed).
	AnnotationRequired = "koord-rt.dev/required"
	// AnnotationApplied is written on each container we change, see [Applied].
	AnnotationApplied = "koord-rt.dev/applied"
	// KeyKeepScheduler "true" keeps the pod's scheduler name unchanged at admission.
	KeyKeepScheduler = "koord-rt.dev/keep-scheduler"
)

// Extended resources. batch-cpu and mid-cpu count milli-cores as plain integers, memory counts bytes; gpu-core,
// gpu-memory-ratio, rdma and fpga count percent (100 is one device).
const (
	ResourceBatchCPU    = "kubernetes.io/batch-cpu"
	ResourceBatchMemory = "kubernetes.io/batch-memory"
	ResourceMidCPU      = "kubernetes.io/mid-cpu"
	ResourceMidMemory   = "kubernetes.io/mid-memory"

	ResourceGPU            = "koordinator.sh/gpu"
	ResourceGPUShared      = "koordinator.sh/gpu.shared"
	ResourceGPUCore        = "koordinator.sh/gpu-core"
	ResourceGPUMemory      = "koordinator.sh/gpu-memory"
	ResourceGPUMemoryRatio = "koordinator.sh/gpu-memory-ratio"
	ResourceRDMA           = "koordinator.sh/rdma"
	ResourceFPGA           = "koordinator.sh/fpga"

	ResourceNvidiaGPU     = "nvidia.com/gpu"
	ResourceDCU           = "dcu.com/gpu"
	ResourceAMDGPU        = "amd.com/gpu"
	ResourceHuaweiNPUCore = "huawei.com/npu-core"
	ResourceHuaweiNPUCPU  = "huawei.com/npu-cpu"
	ResourceHuaweiNPUDVPP = "huawei.com/npu-dvpp"

	ResourceDeprecatedBatchCPU       = "koordinator.sh/batch-cpu"
	ResourceDeprecatedBatchMemory    = "koordinator.sh/batch-memory"
	ResourceDeprecatedRDMA           = "kubernetes.io/rdma"
	ResourceDeprecatedFPGA           = "kubernetes.io/fpga"
	ResourceDeprecatedGPU            = "kubernetes.io/gpu"
	ResourceDeprecatedGPUCore        = "kubernetes.io/gpu-core"
	ResourceDeprecatedGPUMemory      = "kubernetes.io/gpu-memory"
	ResourceDeprecatedGPUMemoryRatio = "kubernetes.io/gpu-memory-ratio"
)

// Device types of device-allocated.
const (
	DeviceGPU  = "gpu"
	DeviceRDMA = "rdma"
	DeviceFPGA = "fpga"
)

// Bounds of what is read from a pod.
const (
	// MaxValueBytes is the longest label or annotation value that is parsed at all.
	MaxValueBytes = 64 << 10
	// MaxEntries is the longest list or map inside a value.
	MaxEntries = 4096
	// MaxDepth is the deepest nesting of JSON inside a value.
	MaxDepth = 16
	// MaxCPU is the highest CPU id.
	MaxCPU = 8191
	// MaxNUMANode is the highest NUMA node id (the kernel's MAX_NUMNODES is 1024).
	MaxNUMANode = 1023
	// MaxName is the longest container name, group id or device id.
	MaxName = 253
)
