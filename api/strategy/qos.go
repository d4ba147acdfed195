// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy

// ResourceQOSStrategy is resourceQOSStrategy: policies and one ResourceQOS per class.
type ResourceQOSStrategy struct {
	Policies    *Policies    `json:"policies,omitempty"`
	LSRClass    *ResourceQOS `json:"lsrClass,omitempty"`
	LSClass     *ResourceQOS `json:"lsClass,omitempty"`
	BEClass     *ResourceQOS `json:"beClass,omitempty"`
	SystemClass *ResourceQOS `json:"systemClass,omitempty"`
	CgroupRoot  *ResourceQOS `json:"cgroupRoot,omitempty"`
}

// Policies selects between ways to do the same thing.
type Policies struct {
	// CPUPolicy is [CPUPolicyIdentity] (default) or [CPUPolicyCoreSched].
	CPUPolicy *string `json:"cpuPolicy,omitempty"`
	// NETQOSPolicy is [NetQOSPolicyTC] (default) or [NetQOSPolicyTerway].
	NETQOSPolicy *string `json:"netQOSPolicy,omitempty"`
	// MemoryHighPolicy (additive) is [MemoryHighLimit] (default: memory.high = limit * throttlingPercent) or
	// [MemoryHighRequest] (upstream: request + (limit - request) * throttlingPercent).
	MemoryHighPolicy *string `json:"memoryHighPolicy,omitempty"`
}

// ResourceQOS holds the parameters of one QoS class.
type ResourceQOS struct {
	CPUQOS     *CPUQOS     `json:"cpuQOS,omitempty"`
	MemoryQOS  *MemoryQOS  `json:"memoryQOS,omitempty"`
	BlkIOQOS   *BlkIOQOS   `json:"blkioQOS,omitempty"`
	ResctrlQOS *ResctrlQOS `json:"resctrlQOS,omitempty"`
	NetworkQOS *NetworkQOS `json:"networkQOS,omitempty"`
}

// CPUQOS is the CPU priority of a class.
type CPUQOS struct {
	// Enable, default false: off means the class gets neutral values.
	Enable *bool `json:"enable,omitempty"`
	// GroupIdentity, -1..2: higher runs first (bvt_warp_ns on vendor kernels).
	GroupIdentity *int64 `json:"groupIdentity,omitempty"`
	// SchedIdle, 0..1: cpu.idle.
	SchedIdle *int64 `json:"schedIdle,omitempty"`
	// CoreExpeller keeps hyperthread siblings free of lower classes.
	CoreExpeller *bool `json:"coreExpeller,omitempty"`
}

// MemoryQOS is memory protection and reclaim of a class.
type MemoryQOS struct {
	// Enable, default false.
	Enable *bool `json:"enable,omitempty"`
	// MinLimitPercent, 0..100 percent of the request: memory.min.
	MinLimitPercent *int64 `json:"minLimitPercent,omitempty"`
	// LowLimitPercent, 0..100 percent of the request: memory.low.
	LowLimitPercent *int64 `json:"lowLimitPercent,omitempty"`
	// ThrottlingPercent, 0..1000: memory.high by [Policies.MemoryHighPolicy]; 0 means max.
	ThrottlingPercent *int64 `json:"throttlingPercent,omitempty"`
	// WmarkRatio, 0..100 percent of the limit at which asynchronous reclaim starts; 0 is off.
	WmarkRatio *int64 `json:"wmarkRatio,omitempty"`
	// WmarkScalePermill, 1..1000, unit 0.01 percent: distance between start and stop of that reclaim.
	WmarkScalePermill *int64 `json:"wmarkScalePermill,omitempty"`
	// WmarkMinAdj, -25..50: order under global reclaim, 50 first.
	WmarkMinAdj *int64 `json:"wmarkMinAdj,omitempty"`
	// PriorityEnable, 0..1, vendor kernels only.
	PriorityEnable *int64 `json:"priorityEnable,omitempty"`
	// Priority, 0..12, vendor kernels only.
	Priority *int64 `json:"priority,omitempty"`
	// OomKillGroup, 0..1: memory.oom.group.
	OomKillGroup *int64 `json:"oomKillGroup,omitempty"`
	// PageCacheEnable limits page cache, vendor kernels only.
	PageCacheEnable *bool `json:"pageCacheEnable,omitempty"`
	// PageCacheLimitPercent, 0..100 percent of the memory limit. No default.
	PageCacheLimitPercent *int64 `json:"pageCacheLimitPercent,omitempty"`
	// PageCacheLimitSize in bytes; wins over the percentage. No default.
	PageCacheLimitSize *Quantity `json:"pageCacheLimitSize,omitempty"`
	// PageCacheReclaimSync reclaims synchronously.
	PageCacheReclaimSync *bool `json:"pageCacheReclaimSync,omitempty"`
}

// BlkIOQOS is block IO of a class. Only the BE class and pods have limits.
type BlkIOQOS struct {
	// Enable, default false: off means not managed.
	Enable *bool `json:"enable,omitempty"`
	// Blocks lists the devices, each name and type once.
	Blocks []Block `json:"blocks,omitempty"`
}

// Block is the IO configuration of one block device, volume group or pod volume.
type Block struct {
	Name string `json:"name,omitempty"`
	// Type is [BlockDevice], [BlockVolumeGroup] or [BlockPodVolume].
	Type  string `json:"type,omitempty"`
	IOCfg IOCfg  `json:"ioCfg,omitzero"`
}

// IOCfg is ioCfg: limits, weight, latency targets and cost model of one device.
type IOCfg struct {
	// ReadIOPS and WriteIOPS in operations per second, ReadBPS and WriteBPS in bytes per second; >= 0, 0 is unlimited.
	ReadIOPS  *int64 `json:"readIOPS,omitempty"`
	WriteIOPS *int64 `json:"writeIOPS,omitempty"`
	ReadBPS   *int64 `json:"readBPS,omitempty"`
	WriteBPS  *int64 `json:"writeBPS,omitempty"`
	// IOWeightPercent, 1..100.
	IOWeightPercent *int64 `json:"ioWeightPercent,omitempty"`
	// ReadLatency and WriteLatency in microseconds, >= 0.
	ReadLatency  *int64 `json:"readLatency,omitempty"`
	WriteLatency *int64 `json:"writeLatency,omitempty"`
	// ReadLatencyPercent and WriteLatencyPercent, 0..100: the percentile that must meet the target.
	ReadLatencyPercent  *int64 `json:"readLatencyPercent,omitempty"`
	WriteLatencyPercent *int64 `json:"writeLatencyPercent,omitempty"`
	// EnableUserModel uses the model fields below (>= 1) instead of the kernel's own model.
	EnableUserModel    *bool  `json:"enableUserModel,omitempty"`
	ModelReadBPS       *int64 `json:"modelReadBPS,omitempty"`
	ModelWriteBPS      *int64 `json:"modelWriteBPS,omitempty"`
	ModelReadSeqIOPS   *int64 `json:"modelReadSeqIOPS,omitempty"`
	ModelWriteSeqIOPS  *int64 `json:"modelWriteSeqIOPS,omitempty"`
	ModelReadRandIOPS  *int64 `json:"modelReadRandIOPS,omitempty"`
	ModelWriteRandIOPS *int64 `json:"modelWriteRandIOPS,omitempty"`
}

// ResctrlQOS is the share of last-level cache and memory bandwidth of a class.
type ResctrlQOS struct {
	// Enable, default false.
	Enable *bool `json:"enable,omitempty"`
	// CATRangeStartPercent and CATRangeEndPercent, 0..100, start < end: the part of the cache ways.
	CATRangeStartPercent *int64 `json:"catRangeStartPercent,omitempty"`
	CATRangeEndPercent   *int64 `json:"catRangeEndPercent,omitempty"`
	// MBAPercent, 0..100 percent of memory bandwidth.
	MBAPercent *int64 `json:"mbaPercent,omitempty"`
}

// NetworkQOS is the network share of a class: a whole number is percent of the total bandwidth (0..100), a string is
// bit/s.
type NetworkQOS struct {
	Enable         *bool        `json:"enable,omitempty"`
	IngressRequest *IntOrString `json:"ingressRequest,omitempty"`
	IngressLimit   *IntOrString `json:"ingressLimit,omitempty"`
	EgressRequest  *IntOrString `json:"egressRequest,omitempty"`
	EgressLimit    *IntOrString `json:"egressLimit,omitempty"`
}

// ClassFor returns the parameters of the class named "LSE", "LSR", "LS", "BE" or "SYSTEM" (LSE uses LSR's). Its five
// sub-structs are never nil; leaves are nil where the spec says nothing. An unknown name or a nil spec gives the empty
// parameters.
func (s *Spec) ClassFor(name string) ResourceQOS {
	var class *ResourceQOS
	if s != nil && s.ResourceQOSStrategy != nil {
		switch name {
		case "LSE", "LSR":
			class = s.ResourceQOSStrategy.LSRClass
		case "LS":
			class = s.ResourceQOSStrategy.LSClass
		case "BE":
			class = s.ResourceQOSStrategy.BEClass
		case "SYSTEM":
			class = s.ResourceQOSStrategy.SystemClass
		}
	}
	return class.filled()
}

// Threshold returns the thresholds, the zero value when there are none.
func (s *Spec) Threshold() ResourceThresholdStrategy {
	if s == nil || s.ResourceUsedThresholdWithBE == nil {
		return ResourceThresholdStrategy{}
	}
	return *s.ResourceUsedThresholdWithBE
}

// Burst returns the CPU burst strategy, the zero value when there is none.
func (s *Spec) Burst() CPUBurstStrategy {
	if s == nil || s.CPUBurstStrategy == nil {
		return CPUBurstStrategy{}
	}
	return *s.CPUBurstStrategy
}

// Policy returns the policies, the zero value when there are none.
func (s *Spec) Policy() Policies {
	if s == nil || s.ResourceQOSStrategy == nil || s.ResourceQOSStrategy.Policies == nil {
		return Policies{}
	}
	return *s.ResourceQOSStrategy.Policies
}

// filled returns a copy whose sub-structs are not nil.
func (r *ResourceQOS) filled() ResourceQOS {
	var out ResourceQOS
	if r != nil {
		out = *r
	}
	if out.CPUQOS == nil {
		out.CPUQOS = &CPUQOS{}
	}
	if out.MemoryQOS == nil {
		out.MemoryQOS = &MemoryQOS{}
	}
	if out.BlkIOQOS == nil {
		out.BlkIOQOS = &BlkIOQOS{}
	}
	if out.ResctrlQOS == nil {
		out.ResctrlQOS = &ResctrlQOS{}
	}
	if out.NetworkQOS == nil {
		out.NetworkQOS = &NetworkQOS{}
	}
	return out
}
