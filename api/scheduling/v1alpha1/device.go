// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Device are the devices of the node of the same name. They are discovered, or written by hand.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName=dev,categories=koordinator
// +kubebuilder:printcolumn:name="Type",type="string",JSONPath=".spec.devices[0]['type','deviceType']",description="Type of the first device"
// +kubebuilder:printcolumn:name="Model",type="string",JSONPath=".spec.devices[0]['labels.model','deviceModel']",description="Model of the first device"
// +kubebuilder:printcolumn:name="GPU-Model",type="string",JSONPath=`.metadata.labels.node\.koordinator\.sh/gpu-model`
// +kubebuilder:printcolumn:name="Unhealthy",type="string",JSONPath=".spec.devices[?(@.health==false)]['id','uuid']",description="The first device that is not healthy"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type Device struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec DeviceSpec `json:"spec,omitzero"`
	// +optional
	Status DeviceStatus `json:"status,omitzero"`
}

// DeviceList is a list of Device.
//
// +kubebuilder:object:root=true
type DeviceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Device `json:"items"`
}

// DeviceSpec lists the devices.
type DeviceSpec struct {
	// Devices of the node, in either spelling. The rule makes its list of ids once: comparing entries with entries would cost an object of 256
	// more than the API server allows.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="[self.map(d, has(d.id) ? d.id : has(d.uuid) ? d.uuid : '')].all(ids, ids.all(u, u == '' || ids.indexOf(u) == ids.lastIndexOf(u)))",message="two devices have the same id (uuid), which names one device of the node; keep one of them"
	Devices []DeviceEntry `json:"devices,omitempty"`
}

// DeviceType says what a device is.
type DeviceType string

// Types of devices; xpu and npu count as GPUs of their vendor.
const (
	GPU  DeviceType = "gpu"
	FPGA DeviceType = "fpga"
	RDMA DeviceType = "rdma"
	XPU  DeviceType = "xpu"
	NPU  DeviceType = "npu"
)

// DeviceEntry is one device as it was written.
//
// +kubebuilder:validation:XValidation:rule="!has(self.type) || !has(self.deviceType) || self.type == self.deviceType",message="type and deviceType are two spellings of one field and differ; keep one"
// +kubebuilder:validation:XValidation:rule="!has(self.id) || !has(self.uuid) || self.id == self.uuid",message="id and uuid are two spellings of one field and differ; keep one"
// +kubebuilder:validation:XValidation:rule="!has(self.deviceModel) || !has(self.labels) || !('model' in self.labels) || self.labels['model'] == self.deviceModel",message="labels.model and deviceModel are two spellings of one field and differ; keep one"
type DeviceEntry struct {
	DeviceInfo `json:",inline"`
	// DeviceType (documents) is type.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	DeviceType DeviceType `json:"deviceType,omitempty"`
	// DeviceModel (documents) is the label model.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	DeviceModel string `json:"deviceModel,omitempty"`
	// DeviceUUID (documents) is id.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DeviceUUID string `json:"uuid,omitempty"`
	// TotalMemory (documents) is the memory of a GPU; 0 is none.
	// +optional
	TotalMemory *resource.Quantity `json:"totalMemory,omitempty"`
}

// DeviceInfo is one device in canonical spelling.
type DeviceInfo struct {
	// Type is gpu, rdma, fpga, xpu or npu.
	// +optional
	Type DeviceType `json:"type,omitempty"`
	// Labels describe the device; pods can select by them.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// UUID is unique in the object.
	// +optional
	UUID string `json:"id,omitempty"`
	// Minor is the number of the device among those of its type, from 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Minor *int32 `json:"minor,omitempty"`
	// ModuleID is its place on the board.
	// +optional
	ModuleID *int32 `json:"moduleID,omitempty"`
	// Health false takes the device out of the node's resources.
	// +kubebuilder:default=false
	Health bool `json:"health"`
	// Resources that it gives.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// Topology is where it is connected; absent, unknown.
	// +optional
	Topology *DeviceTopology `json:"topology,omitempty"`
	// VFGroups are its virtual functions.
	// +optional
	VFGroups []VirtualFunctionGroup `json:"vfGroups,omitempty"`
	// Conditions of the device.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DeviceTopology is where a device is connected.
type DeviceTopology struct {
	// SocketID is the processor socket.
	SocketID int32 `json:"socketID"`
	// NodeID is the memory node, -1 for unknown.
	NodeID int32 `json:"nodeID"`
	// PCIEID is the PCIe switch.
	PCIEID string `json:"pcieID"`
	// BusID is domain:bus:device.function.
	// +optional
	BusID string `json:"busID,omitempty"`
}

// VirtualFunctionGroup are virtual functions with the same labels.
type VirtualFunctionGroup struct {
	// Labels describe the group; pods can select by them.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// VFs of the group.
	// +optional
	VFs []VirtualFunction `json:"vfs,omitempty"`
}

// VirtualFunction is one virtual function.
type VirtualFunction struct {
	// Minor is its number, from 0.
	Minor int32 `json:"minor"`
	// BusID is domain:bus:device.function.
	// +optional
	BusID string `json:"busID,omitempty"`
}

// DeviceStatus says who has the devices, in both spellings; the scheduler writes it.
type DeviceStatus struct {
	// Allocations by type.
	// +optional
	Allocations []DeviceAllocation `json:"allocations,omitempty"`
	// DeviceAllocations (documents) by device.
	// +optional
	DeviceAllocations []DeviceUse `json:"deviceAllocations,omitempty"`
}

// DeviceAllocation are the allocations of one type.
type DeviceAllocation struct {
	// Type of the devices.
	// +optional
	Type DeviceType `json:"type,omitempty"`
	// Entries by pod.
	// +optional
	Entries []DeviceAllocationItem `json:"entries,omitempty"`
}

// DeviceAllocationItem is what one pod has.
type DeviceAllocationItem struct {
	// Name of the pod.
	// +optional
	Name string `json:"name,omitempty"`
	// Namespace of the pod.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// UUID of the pod.
	// +optional
	UUID string `json:"uuid,omitempty"`
	// Minors of the devices.
	// +optional
	Minors []int32 `json:"minors,omitempty"`
}

// DeviceUse is who uses one device (documents).
type DeviceUse struct {
	// Device that is used.
	Device DeviceRef `json:"device"`
	// Allocations by container.
	// +optional
	Allocations []ContainerDevice `json:"allocations,omitempty"`
}

// DeviceRef names a device.
type DeviceRef struct {
	// DeviceType of the device.
	DeviceType DeviceType `json:"deviceType"`
	// UUID of the device.
	UUID string `json:"uuid"`
}

// ContainerDevice is what one container has of a device.
type ContainerDevice struct {
	// Pod of the container.
	Pod DevicePod `json:"pod"`
	// Container is its name.
	// +optional
	Container string `json:"container,omitempty"`
	// Allocated is the share in percent; 100% is the whole device.
	// +optional
	// +kubebuilder:validation:Pattern=`^(100|[0-9]{1,2})%$`
	Allocated string `json:"allocated,omitempty"`
}

// DevicePod names a pod.
type DevicePod struct {
	// Namespace of the pod.
	Namespace string `json:"namespace"`
	// Name of the pod.
	Name string `json:"name"`
}
