// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
)

// NodeMetric is what the node of the same name uses. The manager writes its spec, the node its status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName=nmet,categories=koordinator
// +kubebuilder:printcolumn:name="CPU",type="string",JSONPath=".status.nodeMetric.nodeUsage.resources.cpu"
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".status.nodeMetric.nodeUsage.resources.memory"
// +kubebuilder:printcolumn:name="BE-CPU",type="string",JSONPath=".status.beMetric.usage.cpu"
// +kubebuilder:printcolumn:name="BE-Memory",type="string",JSONPath=".status.beMetric.usage.memory"
// +kubebuilder:printcolumn:name="Updated",type="date",JSONPath=".status.updateTime",description="When the node last reported"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.nodeName) || self.spec.nodeName == self.metadata.name",message="spec.nodeName is the node that the object is named after: metadata.name and spec.nodeName must be equal",fieldPath=".spec.nodeName"
type NodeMetric struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec NodeMetricSpec `json:"spec,omitzero"`
	// +optional
	Status NodeMetricStatus `json:"status,omitzero"`
}

// NodeMetricList is a list of NodeMetric.
//
// +kubebuilder:object:root=true
type NodeMetricList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeMetric `json:"items"`
}

// NodeMetricSpec says what to collect and when to report it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.metricCollectPolicy) || !has(self.metricCollectPolicy.reportIntervalSeconds) || !has(self.collectionIntervalSeconds) || self.metricCollectPolicy.reportIntervalSeconds == self.collectionIntervalSeconds",message="metricCollectPolicy.reportIntervalSeconds and collectionIntervalSeconds are two spellings of one field and differ; keep one"
type NodeMetricSpec struct {
	// MetricCollectPolicy is what is collected.
	// +optional
	MetricCollectPolicy *CollectPolicy `json:"metricCollectPolicy,omitempty"`
	// NodeName (documents) is the object's name once more.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// CollectionIntervalSeconds (documents) is reportIntervalSeconds. With it, containers are reported too.
	// +optional
	// +kubebuilder:validation:Minimum=1
	CollectionIntervalSeconds *int64 `json:"collectionIntervalSeconds,omitempty"`
}

// CollectPolicy is metricCollectPolicy. The node holds values within its own bounds (api/slo), which it reports.
type CollectPolicy struct {
	// AggregateDurationSeconds is what usages are averaged over; default 300, held at 60..1800.
	// +optional
	// +kubebuilder:validation:Minimum=1
	AggregateDurationSeconds *int64 `json:"aggregateDurationSeconds,omitempty"`
	// ReportIntervalSeconds is the time between two reports; default 60, held at 30..3600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ReportIntervalSeconds *int64 `json:"reportIntervalSeconds,omitempty"`
	// NodeAggregatePolicy names the windows of the percentiles; default 5, 10 and 30 minutes.
	// +optional
	NodeAggregatePolicy *AggregatePolicy `json:"nodeAggregatePolicy,omitempty"`
	// NodeMemoryCollectPolicy says which page cache counts as used; default usageWithoutPageCache.
	// +optional
	// +kubebuilder:validation:Enum=usageWithoutPageCache;usageWithHotPageCache;usageWithPageCache
	NodeMemoryCollectPolicy *string `json:"nodeMemoryCollectPolicy,omitempty"`
	// ContainerMetrics asks for status.podMetrics, which triples the object. Default false, true with
	// collectionIntervalSeconds.
	// +optional
	ContainerMetrics *bool `json:"containerMetrics,omitempty"`
}

// AggregatePolicy names windows.
type AggregatePolicy struct {
	// Durations are windows of 1s to 30m, at most eight.
	// +optional
	Durations []metav1.Duration `json:"durations,omitempty"`
}

// ResourceMap are amounts by resource, and of devices.
type ResourceMap struct {
	// Resources are amounts by resource.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// Devices are amounts of single devices.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Devices []schedulingv1alpha1.DeviceInfo `json:"devices,omitempty"`
}

// NodeMetricStatus is what was measured. Fields of Koordinator and of the documents stand side by side and say the same. Lists are
// bounded far above what a kubelet runs: whoever has a node's credentials writes this, and its readers hold all of it in memory.
type NodeMetricStatus struct {
	// UpdateTime is when the node reported; readers take an old report for none.
	// +optional
	// +nullable
	UpdateTime *metav1.Time `json:"updateTime,omitempty"`
	// NodeMetric is the node level.
	// +optional
	NodeMetric *NodeMetricInfo `json:"nodeMetric,omitempty"`
	// PodsMetric is one entry per pod.
	// +optional
	// +kubebuilder:validation:MaxItems=2000
	PodsMetric []PodMetric `json:"podsMetric,omitempty"`
	// HostApplicationMetric is one entry per application outside Kubernetes.
	// +optional
	// +kubebuilder:validation:MaxItems=2000
	HostApplicationMetric []HostApplicationMetric `json:"hostApplicationMetric,omitempty"`
	// ProdReclaimableMetric is what production pods ask for and are not expected to use.
	// +optional
	ProdReclaimableMetric *Prediction `json:"prodReclaimableMetric,omitempty"`
	// ProdPeakMetric is the most that production pods are expected to use.
	// +optional
	ProdPeakMetric *Prediction `json:"prodPeakMetric,omitempty"`
	// BEMetric (documents) is the total of BE pods.
	// +optional
	BEMetric *ClassMetric `json:"beMetric,omitempty"`
	// LSMetric (documents) is the total of all other pods.
	// +optional
	LSMetric *ClassMetric `json:"lsMetric,omitempty"`
	// PodMetrics (documents) is one entry per pod with its containers.
	// +optional
	// +kubebuilder:validation:MaxItems=2000
	PodMetrics []PodContainers `json:"podMetrics,omitempty"`
	// Evictions (koord-rt) tell what the node's agent has evicted of late; absent where that is nothing.
	// +optional
	Evictions *EvictionMetric `json:"evictions,omitempty"`
}

// EvictionMetric counts pods that the node's agent has evicted because the node was short of something.
type EvictionMetric struct {
	// LastHour is how many in the hour before updateTime, since the node has booted.
	// +kubebuilder:validation:Minimum=0
	LastHour int64 `json:"lastHour"`
}

// NodeMetricInfo is the node level.
//
// +kubebuilder:validation:XValidation:rule="!has(self.usage) || !has(self.nodeUsage) || !has(self.nodeUsage.resources) || ['cpu', 'memory'].all(r, !(r in self.usage) || !(r in self.nodeUsage.resources) || quantity(string(self.usage[r])).compareTo(quantity(string(self.nodeUsage.resources[r]))) == 0)",message="nodeUsage.resources and usage are two spellings of one field and differ; keep one"
type NodeMetricInfo struct {
	// NodeUsage is what the whole node uses.
	// +optional
	NodeUsage ResourceMap `json:"nodeUsage,omitzero"`
	// AggregatedNodeUsages are percentiles of it.
	// +optional
	AggregatedNodeUsages []AggregatedUsage `json:"aggregatedNodeUsages,omitempty"`
	// SystemUsage is what is used outside of pods and host applications.
	// +optional
	SystemUsage ResourceMap `json:"systemUsage,omitzero"`
	// AggregatedSystemUsages are percentiles of it.
	// +optional
	AggregatedSystemUsages []AggregatedUsage `json:"aggregatedSystemUsages,omitempty"`
	// NUMAUsages is one entry per memory node.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	NUMAUsages []NUMAUsage `json:"numaUsages,omitempty"`
	// Usage (documents) equals nodeUsage.resources.
	// +optional
	Usage corev1.ResourceList `json:"usage,omitempty"`
	// Request (documents) is the sum over the pods that have not finished.
	// +optional
	Request corev1.ResourceList `json:"request,omitempty"`
	// Limit (documents) likewise; a container without a limit adds nothing.
	// +optional
	Limit corev1.ResourceList `json:"limit,omitempty"`
}

// AggregatedUsage are percentiles over one window.
type AggregatedUsage struct {
	// Usage by avg, p50, p90, p95, p99.
	// +optional
	Usage map[string]ResourceMap `json:"usage,omitempty"`
	// Duration of the window.
	// +optional
	Duration metav1.Duration `json:"duration,omitempty"`
}

// NUMAUsage is one memory node.
type NUMAUsage struct {
	// NUMANodeID is its number.
	NUMANodeID int32 `json:"numaNodeID"`
	// NodeUsage is what is used of it.
	// +optional
	NodeUsage ResourceMap `json:"nodeUsage,omitzero"`
	// SystemUsage is what of that is used outside of pods.
	// +optional
	SystemUsage ResourceMap `json:"systemUsage,omitzero"`
}
