// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import "github.com/koord-rt/koord-rt/api/strategy"

// Ask is the whole wish of one pod, parsed. Nil, empty and zero mean "not asked".
type Ask struct {
	// QoS is the label's class, QoSNone without one; see [KubeQoS.DefaultQoS] for the default.
	QoS QoS
	// PriorityClass is the label's band, PriorityNone without one.
	PriorityClass PriorityClass
	// Extended holds batch and mid resources by container name.
	Extended map[string]ExtendedContainer
	// HasExtended says that the extended-resource-spec annotation is present and valid, even if it names no container.
	HasExtended bool
	// ResourceStatus is the scheduler's placement.
	ResourceStatus *ResourceStatus
	// CPUBurst overrides the node's burst strategy field by field.
	CPUBurst *CPUBurst
	// CPUQOS overrides the class' CPU QoS; honoured for LS pods only.
	CPUQOS *strategy.CPUQOS
	// MemoryQOS overrides the class' memory QoS.
	MemoryQOS *MemoryQOS
	// BlkIO limits block devices for the pod.
	BlkIO []strategy.Block
	// Network limits the pod's traffic.
	Network *NetworkQOS
	// Resctrl asks for a cache and bandwidth group of the pod's own.
	Resctrl *Resctrl
	// Devices are the scheduler's device allocations by device type (gpu, rdma, fpga ...).
	Devices map[string][]DeviceAllocation
	// OOMScoreAdj is the pod-level value, -1000..1000.
	OOMScoreAdj *int
	// OOMScoreAdjByContainer wins over OOMScoreAdj.
	OOMScoreAdjByContainer map[string]int
	// CoreSchedGroup is the core-scheduling group id.
	CoreSchedGroup string
	// CoreSchedPolicy is "", none or exclusive.
	CoreSchedPolicy string
	// GPUIsolationProvider is HAMi-core or empty.
	GPUIsolationProvider string
	// OptOut holds the features that must leave the pod alone.
	OptOut FeatureSet
	// Required holds the features without which the pod must not start.
	Required FeatureSet
}

// OOMScoreAdjFor is the value for one container: its own, else the pod's; false when neither is asked.
func (a *Ask) OOMScoreAdjFor(container string) (int, bool) {
	if v, ok := a.OOMScoreAdjByContainer[container]; ok {
		return v, true
	}
	if a.OOMScoreAdj != nil {
		return *a.OOMScoreAdj, true
	}
	return 0, false
}

// Problem is one key that could not be used.
type Problem struct {
	// Key is the label or annotation.
	Key string
	// Reason says why, at most 200 bytes, without control characters.
	Reason string
}

// String is "key: reason".
func (p Problem) String() string { return p.Key + ": " + p.Reason }

// ExtendedResources are amounts of one container; nil is not given.
type ExtendedResources struct {
	// BatchCPU and MidCPU are milli-cores.
	BatchCPU *int64
	MidCPU   *int64
	// BatchMemory and MidMemory are bytes.
	BatchMemory *int64
	MidMemory   *int64
}

// ExtendedContainer is one entry of extended-resource-spec.
type ExtendedContainer struct {
	Limits   ExtendedResources
	Requests ExtendedResources
}

// ResourceStatus is resource-status.
type ResourceStatus struct {
	// CPUSet is a kernel CPU list, checked, as written ("0-3,8"); empty when no CPUs are pinned.
	CPUSet string
	// NUMANodes are the node ids of NUMANodeResources in the order given.
	NUMANodes []int
	// NUMANodeResources are the raw amounts per NUMA node.
	NUMANodeResources []NUMANodeResource
}

// NUMANodeResource is the amount of each resource taken from one NUMA node.
type NUMANodeResource struct {
	Node int `json:"node"`
	// Resources are quantities as written.
	Resources map[string]strategy.Quantity `json:"resources,omitempty"`
}

// CPUBurst is the cpuBurst annotation; nil fields keep the node's value. Ranges as [strategy.CPUBurstStrategy].
type CPUBurst struct {
	Policy                     *string `json:"policy,omitempty"`
	CPUBurstPercent            *int64  `json:"cpuBurstPercent,omitempty"`
	CFSQuotaBurstPercent       *int64  `json:"cfsQuotaBurstPercent,omitempty"`
	CFSQuotaBurstPeriodSeconds *int64  `json:"cfsQuotaBurstPeriodSeconds,omitempty"`
}

// MemoryQOS is the memoryQOS annotation.
type MemoryQOS struct {
	// Policy is "", default, none or auto: none switches memory QoS off for the pod.
	Policy string `json:"policy,omitempty"`
	strategy.MemoryQOS
}

// NetworkQOS is the networkQOS annotation: the most a pod may receive and send, in bit/s; 0 is not limited.
type NetworkQOS struct {
	IngressLimit, EgressLimit int64
}

// Range is a part of the cache ways in percent, Start < End.
type Range struct {
	Start int64
	End   int64
}

// Resctrl is the resctrl annotation. The per-cache values win over the general one for their cache id.
type Resctrl struct {
	// LLC is the cache part for every cache; nil is not asked.
	LLC *Range
	// LLCPerCache is the cache part by cache id.
	LLCPerCache map[int]Range
	// MBPercent is memory bandwidth in percent, 1..100; nil is not asked.
	MBPercent *int64
	// MBPerCache is memory bandwidth by cache id.
	MBPerCache map[int]int64
}

// DeviceAllocation is one device given to a pod.
type DeviceAllocation struct {
	// Minor is the device's minor number, >= 0.
	Minor int32
	// ID is the device's UUID, may be empty.
	ID string
	// Resources are amounts by resource name: percent or bytes.
	Resources map[string]int64
	// VFs are the virtual functions of the device.
	VFs []VirtualFunction
	// GPUSharedResourceTemplate names a vendor's partition template.
	GPUSharedResourceTemplate string
}

// VirtualFunction is one PCI virtual function.
type VirtualFunction struct {
	Minor int32 `json:"minor"`
	// BusID is a PCI address, dddd:bb:dd.f, checked: it becomes part of a sysfs path.
	BusID string `json:"busID,omitempty"`
}

// Applied is the applied annotation: what was changed on a container and by whom.
type Applied struct {
	// Generation is that of the strategy in force.
	Generation uint64 `json:"gen"`
	// By is "koord-nri/VERSION".
	By string `json:"by"`
	// Set maps knob to "value owner".
	Set map[string]string `json:"set,omitempty"`
	// Base maps knob to the value asked for before us, for the knobs in Set that had one: what a later decision starts from.
	Base map[string]string `json:"base,omitempty"`
}
