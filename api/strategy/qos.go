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
	// +kubebuilder:validation:Enum=groupIdentity;coreSched
	CPUPolicy *string `json:"cpuPolicy,omitempty"`
	// NETQOSPolicy is [NetQOSPolicyTC] (default) or [NetQOSPolicyTerway].
	// +kubebuilder:validation:Enum=tc;terway-qos
	NETQOSPolicy *string `json:"netQOSPolicy,omitempty"`
	// MemoryHighPolicy (additive) is [MemoryHighLimit] (default: memory.high = limit * throttlingPercent) or
	// [MemoryHighRequest] (upstream: request + (limit - request) * throttlingPercent).
	// +kubebuilder:validation:Enum=limitPercent;requestLimitRange
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
	// +kubebuilder:validation:Minimum=-1
	// +kubebuilder:validation:Maximum=2
	GroupIdentity *int64 `json:"groupIdentity,omitempty"`
	// SchedIdle, 0..1: cpu.idle.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	SchedIdle *int64 `json:"schedIdle,omitempty"`
	// CoreExpeller keeps hyperthread siblings free of lower classes.
	CoreExpeller *bool `json:"coreExpeller,omitempty"`
}

// MemoryQOS is memory protection and reclaim of a class.
type MemoryQOS struct {
	// Enable, default false.
	Enable *bool `json:"enable,omitempty"`
	// MinLimitPercent, 0..100 percent of the request: memory.min.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MinLimitPercent *int64 `json:"minLimitPercent,omitempty"`
	// LowLimitPercent, 0..100 percent of the request: memory.low.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	LowLimitPercent *int64 `json:"lowLimitPercent,omitempty"`
	// ThrottlingPercent, 0..1000: memory.high by [Policies.MemoryHighPolicy]; 0 means max.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	ThrottlingPercent *int64 `json:"throttlingPercent,omitempty"`
	// WmarkRatio, 0..100 percent of the limit at which asynchronous reclaim starts; 0 is off.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	WmarkRatio *int64 `json:"wmarkRatio,omitempty"`
	// WmarkScalePermill, 1..1000, unit 0.01 percent: distance between start and stop of that reclaim.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	WmarkScalePermill *int64 `json:"wmarkScalePermill,omitempty"`
	// WmarkMinAdj, -25..50: order under global reclaim, 50 first.
	// +kubebuilder:validation:Minimum=-25
	// +kubebuilder:validation:Maximum=50
	WmarkMinAdj *int64 `json:"wmarkMinAdj,omitempty"`
	// PriorityEnable, 0..1, vendor kernels only.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	PriorityEnable *int64 `json:"priorityEnable,omitempty"`
	// Priority, 0..12, vendor kernels only.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=12
	Priority *int64 `json:"priority,omitempty"`
	// OomKillGroup, 0..1: memory.oom.group.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	OomKillGroup *int64 `json:"oomKillGroup,omitempty"`
	// PageCacheEnable limits page cache, vendor kernels only.
	PageCacheEnable *bool `json:"pageCacheEnable,omitempty"`
	// PageCacheLimitPercent, 0..100 percent of the memory limit. No default.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PageCacheLimitPercent *int64 `json:"pageCacheLimitPercent,omitempty"`
	// PageCacheLimitSize in bytes; wins over the percentage. No default.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`
	PageCacheLimitSize *Quantity `json:"pageCacheLimitSize,omitempty"`
	// PageCacheReclaimSync reclaims synchronously.
	PageCacheReclaimSync *bool `json:"pageCacheReclaimSync,omitempty"`
}

// BlkIOQOS is block IO of a class, for each of its pods; cgroupRoot's blocks are the disks' own cost control.
//
// +kubebuilder:validation:XValidation:rule="!has(self.blocks) || self.blocks.all(a, self.blocks.exists_one(b, a.name == b.name && a.type == b.type))",message="each name once per type in blocks"
type BlkIOQOS struct {
	// Enable, default false: off means not managed.
	Enable *bool `json:"enable,omitempty"`
	// Blocks lists the devices, each name and type once.
	// +kubebuilder:validation:MaxItems=64
	Blocks []Block `json:"blocks,omitempty"`
}

// Block is the IO configuration of one block device, volume group or pod volume.
type Block struct {
	// +kubebuilder:validation:Required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Type is [BlockDevice], [BlockVolumeGroup] or [BlockPodVolume].
	// +kubebuilder:validation:Required
	// +kubebuilder:validation:Enum=device;volumegroup;podvolume
	Type string `json:"type,omitempty"`
	// +optional
	IOCfg IOCfg `json:"ioCfg,omitzero"`
}

// IOCfg is ioCfg: limits, weight, latency targets and cost model of one device.
type IOCfg struct {
	// ReadIOPS and WriteIOPS in operations per second, ReadBPS and WriteBPS in bytes per second; >= 0, 0 is unlimited.
	// +kubebuilder:validation:Minimum=0
	ReadIOPS *int64 `json:"readIOPS,omitempty"`
	// +kubebuilder:validation:Minimum=0
	WriteIOPS *int64 `json:"writeIOPS,omitempty"`
	// +kubebuilder:validation:Minimum=0
	ReadBPS *int64 `json:"readBPS,omitempty"`
	// +kubebuilder:validation:Minimum=0
	WriteBPS *int64 `json:"writeBPS,omitempty"`
	// IOWeightPercent, 1..100.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	IOWeightPercent *int64 `json:"ioWeightPercent,omitempty"`
	// ReadLatency and WriteLatency in microseconds, >= 0, 0 is none: the targets of a disk's cost control under cgroupRoot; elsewhere the
	// smaller one is the pod's latency target.
	// +kubebuilder:validation:Minimum=0
	ReadLatency *int64 `json:"readLatency,omitempty"`
	// +kubebuilder:validation:Minimum=0
	WriteLatency *int64 `json:"writeLatency,omitempty"`
	// ReadLatencyPercent and WriteLatencyPercent, 0..100: the part of the requests that must meet the target. Under cgroupRoot only.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	ReadLatencyPercent *int64 `json:"readLatencyPercent,omitempty"`
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	WriteLatencyPercent *int64 `json:"writeLatencyPercent,omitempty"`
	// EnableUserModel uses the model fields below (>= 1) instead of the kernel's own model, all six. Under cgroupRoot only.
	EnableUserModel *bool `json:"enableUserModel,omitempty"`
	// +kubebuilder:validation:Minimum=1
	ModelReadBPS *int64 `json:"modelReadBPS,omitempty"`
	// +kubebuilder:validation:Minimum=1
	ModelWriteBPS *int64 `json:"modelWriteBPS,omitempty"`
	// +kubebuilder:validation:Minimum=1
	ModelReadSeqIOPS *int64 `json:"modelReadSeqIOPS,omitempty"`
	// +kubebuilder:validation:Minimum=1
	ModelWriteSeqIOPS *int64 `json:"modelWriteSeqIOPS,omitempty"`
	// +kubebuilder:validation:Minimum=1
	ModelReadRandIOPS *int64 `json:"modelReadRandIOPS,omitempty"`
	// +kubebuilder:validation:Minimum=1
	ModelWriteRandIOPS *int64 `json:"modelWriteRandIOPS,omitempty"`
}

// Unused names the fields that are given and set nothing in a class or an annotation. io.latency has one target for a disk and no percentile;
// the cost model is the disk's, not a cgroup's: both count under cgroupRoot alone.
func (c *IOCfg) Unused() []string {
	out := given([]field{{"readLatencyPercent", c.ReadLatencyPercent}, {"writeLatencyPercent", c.WriteLatencyPercent}})
	if c.EnableUserModel != nil && *c.EnableUserModel {
		out = append(out, "enableUserModel")
	}
	return append(out, given(c.model())...)
}

// UnusedByRoot names the fields that are given and set nothing under cgroupRoot: the root cgroup has neither limits nor a weight, and the
// figures of a model count with enableUserModel.
func (c *IOCfg) UnusedByRoot() []string {
	out := given([]field{
		{"readIOPS", c.ReadIOPS}, {"writeIOPS", c.WriteIOPS}, {"readBPS", c.ReadBPS}, {"writeBPS", c.WriteBPS}, {"ioWeightPercent", c.IOWeightPercent},
	})
	if c.EnableUserModel == nil || !*c.EnableUserModel {
		out = append(out, given(c.model())...)
	}
	return out
}

// model are the figures of the cost model.
func (c *IOCfg) model() []field {
	return []field{
		{"modelReadBPS", c.ModelReadBPS}, {"modelWriteBPS", c.ModelWriteBPS}, {"modelReadSeqIOPS", c.ModelReadSeqIOPS},
		{"modelWriteSeqIOPS", c.ModelWriteSeqIOPS}, {"modelReadRandIOPS", c.ModelReadRandIOPS}, {"modelWriteRandIOPS", c.ModelWriteRandIOPS},
	}
}

// field is a number of a configuration by its name.
type field struct {
	name string
	n    *int64
}

// given names the fields that say something.
func given(fields []field) (names []string) {
	for _, f := range fields {
		if f.n != nil && *f.n != 0 {
			names = append(names, f.name)
		}
	}
	return names
}

// ResctrlQOS is the share of last-level cache and memory bandwidth of a class.
//
// +kubebuilder:validation:XValidation:rule="!has(self.catRangeStartPercent) || !has(self.catRangeEndPercent) || self.catRangeStartPercent < self.catRangeEndPercent",message="catRangeStartPercent must be below catRangeEndPercent"
type ResctrlQOS struct {
	// Enable, default false.
	Enable *bool `json:"enable,omitempty"`
	// CATRangeStartPercent and CATRangeEndPercent, 0..100, start < end: the part of the cache ways.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CATRangeStartPercent *int64 `json:"catRangeStartPercent,omitempty"`
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CATRangeEndPercent *int64 `json:"catRangeEndPercent,omitempty"`
	// MBAPercent, 0..100 percent of memory bandwidth.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MBAPercent *int64 `json:"mbaPercent,omitempty"`
}

// NetworkQOS is the network share of a class: a whole number is percent of the total bandwidth (0..100), a string is
// bit/s.
type NetworkQOS struct {
	Enable *bool `json:"enable,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || (self >= 0 && self <= 100)",message="a whole number is percent of the total bandwidth, 0..100; bit/s are a string"
	// +kubebuilder:default=0
	IngressRequest *IntOrString `json:"ingressRequest,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || (self >= 0 && self <= 100)",message="a whole number is percent of the total bandwidth, 0..100; bit/s are a string"
	// +kubebuilder:default=100
	IngressLimit *IntOrString `json:"ingressLimit,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || (self >= 0 && self <= 100)",message="a whole number is percent of the total bandwidth, 0..100; bit/s are a string"
	// +kubebuilder:default=0
	EgressRequest *IntOrString `json:"egressRequest,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || (self >= 0 && self <= 100)",message="a whole number is percent of the total bandwidth, 0..100; bit/s are a string"
	// +kubebuilder:default=100
	EgressLimit *IntOrString `json:"egressLimit,omitempty"`
}

// ClassRoot is the name for [Spec.ClassFor] of what is the node's own, and of its field.
const ClassRoot = "cgroupRoot"

// ClassFor returns the parameters of the class named "LSE", "LSR", "LS", "BE" or "SYSTEM" (LSE uses LSR's), or of [ClassRoot]. Its five
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
		case ClassRoot:
			class = s.ResourceQOSStrategy.CgroupRoot
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
