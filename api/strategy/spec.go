// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy

import "encoding/json"

// Spec is NodeSLO's spec in canonical spelling. A nil pointer, slice or map means "not given".
type Spec struct {
	// ResourceUsedThresholdWithBE gates and sizes suppression and eviction of best-effort pods.
	ResourceUsedThresholdWithBE *ResourceThresholdStrategy `json:"resourceUsedThresholdWithBE,omitempty"`
	// ResourceQOSStrategy holds the parameters of each QoS class.
	ResourceQOSStrategy *ResourceQOSStrategy `json:"resourceQOSStrategy,omitempty"`
	// CPUBurstStrategy says how far LS pods may exceed their CPU limit.
	CPUBurstStrategy *CPUBurstStrategy `json:"cpuBurstStrategy,omitempty"`
	// SystemStrategy holds node-wide kernel settings; fields not given are not written.
	SystemStrategy *SystemStrategy `json:"systemStrategy,omitempty"`
	// Extensions is a free map of third-party strategies, kept as given.
	Extensions map[string]json.RawMessage `json:"extensions,omitempty"`
	// HostApplications are cgroups outside Kubernetes that take part in QoS.
	HostApplications []HostApplication `json:"hostApplications,omitempty"`
}

// ResourceThresholdStrategy is resourceUsedThresholdWithBE. Percentages are whole percents of node capacity unless
// said otherwise.
//
// +kubebuilder:validation:XValidation:rule="!has(self.memoryEvictLowerPercent) || self.memoryEvictLowerPercent < (has(self.memoryEvictThresholdPercent) ? self.memoryEvictThresholdPercent : 70)",message="memoryEvictLowerPercent must be below memoryEvictThresholdPercent (default 70)"
// +kubebuilder:validation:XValidation:rule="!has(self.memoryAllocatableEvictLowerPercent) || !has(self.memoryAllocatableEvictThresholdPercent) || self.memoryAllocatableEvictLowerPercent < self.memoryAllocatableEvictThresholdPercent",message="memoryAllocatableEvictLowerPercent must be below memoryAllocatableEvictThresholdPercent"
// +kubebuilder:validation:XValidation:rule="!has(self.cpuEvictBESatisfactionLowerPercent) || !has(self.cpuEvictBESatisfactionUpperPercent) || self.cpuEvictBESatisfactionLowerPercent < self.cpuEvictBESatisfactionUpperPercent",message="cpuEvictBESatisfactionLowerPercent must be below cpuEvictBESatisfactionUpperPercent"
// +kubebuilder:validation:XValidation:rule="!has(self.cpuEvictLowerPercent) || !has(self.cpuEvictThresholdPercent) || self.cpuEvictLowerPercent < self.cpuEvictThresholdPercent",message="cpuEvictLowerPercent must be below cpuEvictThresholdPercent"
// +kubebuilder:validation:XValidation:rule="!has(self.cpuAllocatableEvictLowerPercent) || !has(self.cpuAllocatableEvictThresholdPercent) || self.cpuAllocatableEvictLowerPercent < self.cpuAllocatableEvictThresholdPercent",message="cpuAllocatableEvictLowerPercent must be below cpuAllocatableEvictThresholdPercent"
type ResourceThresholdStrategy struct {
	// Enable gates every BE suppression and eviction feature. Default false.
	Enable *bool `json:"enable,omitempty"`
	// CPUSuppressThresholdPercent, 0..100, default 65.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CPUSuppressThresholdPercent *int64 `json:"cpuSuppressThresholdPercent,omitempty"`
	// CPUSuppressMinPercent, 0..100, is the floor of the CPU left to BE. No default.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CPUSuppressMinPercent *int64 `json:"cpuSuppressMinPercent,omitempty"`
	// CPUSuppressPolicy is [SuppressCPUSet] (default) or [SuppressCFSQuota].
	// +kubebuilder:validation:Enum=cpuset;cfsQuota
	CPUSuppressPolicy *string `json:"cpuSuppressPolicy,omitempty"`
	// MemoryEvictThresholdPercent, 0..100, default 70.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MemoryEvictThresholdPercent *int64 `json:"memoryEvictThresholdPercent,omitempty"`
	// MemoryEvictLowerPercent, below the threshold, default threshold - 2.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MemoryEvictLowerPercent *int64 `json:"memoryEvictLowerPercent,omitempty"`
	// MemoryAllocatableEvictThresholdPercent, >= 0, percent of allocatable that is requested. No default.
	// +kubebuilder:validation:Minimum=0
	MemoryAllocatableEvictThresholdPercent *int64 `json:"memoryAllocatableEvictThresholdPercent,omitempty"`
	// MemoryAllocatableEvictLowerPercent, >= 0, below its threshold, default threshold - 2.
	// +kubebuilder:validation:Minimum=0
	MemoryAllocatableEvictLowerPercent *int64 `json:"memoryAllocatableEvictLowerPercent,omitempty"`
	// MemoryRequestUtilizationPercent, 0..100 (additive; seed key memory-request-utilization-percent): BE memory use
	// over the sum of BE memory requests from which on BE memory is reclaimed and batch-memory is not raised. No default.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MemoryRequestUtilizationPercent *int64 `json:"memoryRequestUtilizationPercent,omitempty"`
	// CPUEvictBESatisfactionUpperPercent, 1..99, target of BE CPU satisfaction. No default.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	CPUEvictBESatisfactionUpperPercent *int64 `json:"cpuEvictBESatisfactionUpperPercent,omitempty"`
	// CPUEvictBESatisfactionLowerPercent, 1..60, trigger of BE CPU satisfaction. No default.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60
	CPUEvictBESatisfactionLowerPercent *int64 `json:"cpuEvictBESatisfactionLowerPercent,omitempty"`
	// CPUEvictBEUsageThresholdPercent, 0..100 of BE's real limit, default 90.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CPUEvictBEUsageThresholdPercent *int64 `json:"cpuEvictBEUsageThresholdPercent,omitempty"`
	// CPUEvictTimeWindowSeconds, > 0, default 60.
	// +kubebuilder:validation:Minimum=1
	CPUEvictTimeWindowSeconds *int64 `json:"cpuEvictTimeWindowSeconds,omitempty"`
	// CPUEvictThresholdPercent, 0..100 of node CPU use. No default.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CPUEvictThresholdPercent *int64 `json:"cpuEvictThresholdPercent,omitempty"`
	// CPUEvictLowerPercent, below its threshold, default threshold - 2 when the threshold is given.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CPUEvictLowerPercent *int64 `json:"cpuEvictLowerPercent,omitempty"`
	// CPUEvictPSIThresholdPercent, 0..100 (additive; seed key cpu-evict-threshold-percent): CPU pressure "some" of the
	// BE tier above which BE pods are evicted. No default.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CPUEvictPSIThresholdPercent *int64 `json:"cpuEvictPSIThresholdPercent,omitempty"`
	// CPUAllocatableEvictThresholdPercent, >= 0. No default.
	// +kubebuilder:validation:Minimum=0
	CPUAllocatableEvictThresholdPercent *int64 `json:"cpuAllocatableEvictThresholdPercent,omitempty"`
	// CPUAllocatableEvictLowerPercent, >= 0, below its threshold, default threshold - 2.
	// +kubebuilder:validation:Minimum=0
	CPUAllocatableEvictLowerPercent *int64 `json:"cpuAllocatableEvictLowerPercent,omitempty"`
	// CPUEvictPolicy is [EvictByRealLimit] (default) or [EvictByAllocatable].
	// +kubebuilder:validation:Enum=evictByRealLimit;evictByAllocatable
	CPUEvictPolicy *string `json:"cpuEvictPolicy,omitempty"`
	// EvictEnabledPriorityThreshold is the highest pod priority that CPUEvict and MemoryEvict may touch. No default.
	EvictEnabledPriorityThreshold *int32 `json:"evictEnabledPriorityThreshold,omitempty"`
	// AllocatableEvictPriorityThreshold, 0..7999. No default.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7999
	AllocatableEvictPriorityThreshold *int32 `json:"allocatableEvictPriorityThreshold,omitempty"`
}

// CPUBurstStrategy is cpuBurstStrategy: how LS pods may exceed their CPU limit for a short time.
type CPUBurstStrategy struct {
	// Policy is one of the Burst* constants, default [BurstNone].
	// +kubebuilder:validation:Enum=none;cpuBurstOnly;cfsQuotaBurstOnly;auto
	Policy *string `json:"policy,omitempty"`
	// CPUBurstPercent, 1..10000 percent of the limit, default 1000; the size of cpu.max.burst.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	CPUBurstPercent *int64 `json:"cpuBurstPercent,omitempty"`
	// CFSQuotaBurstPercent, >= 100 percent of the limit, default 300; the ceiling of a raised quota.
	// +kubebuilder:validation:Minimum=100
	CFSQuotaBurstPercent *int64 `json:"cfsQuotaBurstPercent,omitempty"`
	// CFSQuotaBurstPeriodSeconds, >= -1, default -1 (no limit).
	// +kubebuilder:validation:Minimum=-1
	CFSQuotaBurstPeriodSeconds *int64 `json:"cfsQuotaBurstPeriodSeconds,omitempty"`
	// SharePoolThresholdPercent, 0..100, default 50: use of the share pool above which quotas are not raised.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SharePoolThresholdPercent *int64 `json:"sharePoolThresholdPercent,omitempty"`
}

// SystemStrategy is systemStrategy. A field not given is not written to the kernel. Where a field's file is a
// vendor kernel's or debugfs's koordlet does not write it either: it refuses the field and says so in its log and in loop kernel-parameters.
type SystemStrategy struct {
	// MinFreeKbytesFactor, > 0: vm.min_free_kbytes = memory in KiB * factor / 10000.
	// +kubebuilder:validation:Minimum=1
	MinFreeKbytesFactor *int64 `json:"minFreeKbytesFactor,omitempty"`
	// WatermarkScaleFactor, 1..400: vm.watermark_scale_factor.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=400
	WatermarkScaleFactor *int64 `json:"watermarkScaleFactor,omitempty"`
	// MemcgReapBackGround, 0..1: refused and told, because the file is a vendor kernel's.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	MemcgReapBackGround *int64 `json:"memcgReapBackGround,omitempty"`
	// SchedGroupIdentityEnabled, 0..1: refused and told, because the file is a vendor kernel's.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	SchedGroupIdentityEnabled *int64 `json:"schedGroupIdentityEnabled,omitempty"`
	// SchedIdleSaverWmark, >= 0 nanoseconds: refused and told, because the file is a vendor kernel's.
	// +kubebuilder:validation:Minimum=0
	SchedIdleSaverWmark *int64 `json:"schedIdleSaverWmark,omitempty"`
	// SchedFeatures switches scheduler features by name upstream: refused and told here, because the file is debugfs's and for debugging.
	SchedFeatures map[string]bool `json:"schedFeatures,omitempty"`
	// PageCacheLimitEnabled, 0..1: refused and told, because the file is a vendor kernel's.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	PageCacheLimitEnabled *int64 `json:"pageCacheLimitEnabled,omitempty"`
	// TotalNetworkBandwidth in bit/s, default 0 (unknown).
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`
	TotalNetworkBandwidth *Quantity `json:"totalNetworkBandwidth,omitempty"`
}

// HostApplication is one entry of hostApplications.
type HostApplication struct {
	// +kubebuilder:validation:MinLength=1
	Name     string `json:"name"`
	Priority string `json:"priority,omitempty"`
	// +kubebuilder:validation:Enum="";LSE;LSR;LS;BE;SYSTEM
	QoS        string      `json:"qos,omitempty"`
	CgroupPath *CgroupPath `json:"cgroupPath,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Strategy map[string]json.RawMessage `json:"strategy,omitempty"`
}

// CgroupPath names a host application's cgroup. Without it LS applications live in host-latency-sensitive/<name>, BE
// applications in host-best-effort/<name>.
type CgroupPath struct {
	// Base is CgroupRoot, Kubepods, KubepodsBurstable or KubepodsBesteffort.
	// +kubebuilder:validation:Enum="";CgroupRoot;Kubepods;KubepodsBurstable;KubepodsBesteffort
	Base         string `json:"base,omitempty"`
	ParentDir    string `json:"parentDir,omitempty"`
	RelativePath string `json:"relativePath,omitempty"`
}

// Values of string fields.
const (
	SuppressCPUSet   = "cpuset"
	SuppressCFSQuota = "cfsQuota"

	EvictByRealLimit   = "evictByRealLimit"
	EvictByAllocatable = "evictByAllocatable"

	BurstNone             = "none"
	BurstCPUBurstOnly     = "cpuBurstOnly"
	BurstCFSQuotaOnly     = "cfsQuotaBurstOnly"
	BurstAuto             = "auto"
	CPUPolicyIdentity     = "groupIdentity"
	CPUPolicyCoreSched    = "coreSched"
	NetQOSPolicyTC        = "tc"
	NetQOSPolicyTerway    = "terway-qos"
	MemoryHighLimit       = "limitPercent"
	MemoryHighRequest     = "requestLimitRange"
	MemoryPolicyDefault   = "default"
	MemoryPolicyNone      = "none"
	MemoryPolicyAuto      = "auto"
	BlockDevice           = "device"
	BlockVolumeGroup      = "volumegroup"
	BlockPodVolume        = "podvolume"
	BaseCgroupRoot        = "CgroupRoot"
	BaseKubepods          = "Kubepods"
	BaseKubepodsBurstable = "KubepodsBurstable"
	BaseKubepodsBestEff   = "KubepodsBesteffort"
)
