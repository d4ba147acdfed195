// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package slo

import "github.com/koord-rt/koord-rt/api/strategy"

// NodeMetric is the object as it is stored, in the user's spelling.
type NodeMetric struct {
	APIVersion string           `json:"apiVersion,omitempty"`
	Kind       string           `json:"kind,omitempty"`
	Metadata   Meta             `json:"metadata"`
	Spec       NodeMetricSpec   `json:"spec"`
	Status     NodeMetricStatus `json:"status,omitzero"`
}

// NodeMetricSpec says what to collect and when to report it.
type NodeMetricSpec struct {
	MetricCollectPolicy *CollectPolicy `json:"metricCollectPolicy,omitempty"`
	// NodeName is the documents' spelling: the object's name once more.
	NodeName string `json:"nodeName,omitempty"`
	// CollectionIntervalSeconds is the documents' spelling of reportIntervalSeconds. With it, containers are reported too.
	CollectionIntervalSeconds *int64 `json:"collectionIntervalSeconds,omitempty"`
}

// CollectPolicy is metricCollectPolicy.
type CollectPolicy struct {
	// AggregateDurationSeconds is what usages are averaged over; default 300, at least 60.
	AggregateDurationSeconds *int64 `json:"aggregateDurationSeconds,omitempty"`
	// ReportIntervalSeconds is the time between two reports; default 60, at least 30.
	ReportIntervalSeconds *int64 `json:"reportIntervalSeconds,omitempty"`
	// NodeAggregatePolicy names the windows of the percentiles; default 5, 10 and 30 minutes.
	NodeAggregatePolicy *AggregatePolicy `json:"nodeAggregatePolicy,omitempty"`
	// NodeMemoryCollectPolicy is one of the Memory* constants; default [MemoryWithoutPageCache].
	NodeMemoryCollectPolicy *string `json:"nodeMemoryCollectPolicy,omitempty"`
	// ContainerMetrics (additive) asks for status.podMetrics, which triples the object. Default false, true with
	// collectionIntervalSeconds.
	ContainerMetrics *bool `json:"containerMetrics,omitempty"`
}

// AggregatePolicy names windows.
type AggregatePolicy struct {
	Durations []Duration `json:"durations,omitempty"`
}

// Values of nodeMemoryCollectPolicy. They are about the node, and as far as it goes about pods:
//
//	usageWithoutPageCache   MemTotal − MemAvailable − L
//	usageWithPageCache      MemTotal − MemFree − L
//	usageWithHotPageCache   MemTotal − MemFree − L − pages that nobody touched for long; the first where the kernel does not tell these
//
// L is free memory on lists of the CPUs, which MemAvailable and MemFree lack. A cgroup has no L: inactive_anon + active_anon +
// unevictable, and with page cache active_file + inactive_file beside. Evictions, metrics and prediction go by the first.
const (
	MemoryWithoutPageCache = "usageWithoutPageCache"
	MemoryWithHotPageCache = "usageWithHotPageCache"
	MemoryWithPageCache    = "usageWithPageCache"
)

// ResourceList holds quantities by resource name.
type ResourceList map[string]strategy.Quantity

// ResourceMap is upstream's wrapper around a list.
type ResourceMap struct {
	Resources ResourceList `json:"resources,omitempty"`
}

// NodeMetricStatus is what was measured. Fields of upstream and of the documents stand side by side: usage and
// nodeUsage.resources, podMetrics and podsMetric say the same.
type NodeMetricStatus struct {
	UpdateTime *Time           `json:"updateTime,omitempty"`
	NodeMetric *NodeMetricInfo `json:"nodeMetric,omitempty"`
	// PodsMetric is upstream's list of pods.
	PodsMetric            []PodMetric             `json:"podsMetric,omitempty"`
	HostApplicationMetric []HostApplicationMetric `json:"hostApplicationMetric,omitempty"`
	ProdReclaimableMetric *Prediction             `json:"prodReclaimableMetric,omitempty"`
	ProdPeakMetric        *Prediction             `json:"prodPeakMetric,omitempty"`
	// BEMetric is the total of BE pods, LSMetric that of all others (documents).
	BEMetric *ClassMetric `json:"beMetric,omitempty"`
	LSMetric *ClassMetric `json:"lsMetric,omitempty"`
	// PodMetrics is the documents' list of pods with their containers.
	PodMetrics []PodContainers `json:"podMetrics,omitempty"`
	// Evictions (additive) tell what the node's agent has evicted of late; nil where that is nothing.
	Evictions *EvictionMetric `json:"evictions,omitempty"`
}

// EvictionMetric counts pods that the node's agent has evicted because the node was short of something.
type EvictionMetric struct {
	// LastHour is how many in the hour before updateTime, since the node has booted.
	LastHour int64 `json:"lastHour"`
}

// NodeMetricInfo is the node level.
type NodeMetricInfo struct {
	NodeUsage              ResourceMap       `json:"nodeUsage,omitzero"`
	AggregatedNodeUsages   []AggregatedUsage `json:"aggregatedNodeUsages,omitempty"`
	SystemUsage            ResourceMap       `json:"systemUsage,omitzero"`
	AggregatedSystemUsages []AggregatedUsage `json:"aggregatedSystemUsages,omitempty"`
	NUMAUsages             []NUMAUsage       `json:"numaUsages,omitempty"`
	// Usage (documents) equals NodeUsage. Request and Limit are sums over the pods that have not finished; a container
	// without a limit adds nothing to Limit.
	Usage   ResourceList `json:"usage,omitempty"`
	Request ResourceList `json:"request,omitempty"`
	Limit   ResourceList `json:"limit,omitempty"`
}

// Aggregations of AggregatedUsage.
const (
	AggregateAvg = "avg"
	AggregateP50 = "p50"
	AggregateP90 = "p90"
	AggregateP95 = "p95"
	AggregateP99 = "p99"
)

// AggregatedUsage are percentiles over one window.
type AggregatedUsage struct {
	// Usage by aggregation.
	Usage    map[string]ResourceMap `json:"usage,omitempty"`
	Duration Duration               `json:"duration"`
}

// NUMAUsage is one memory node of the machine.
type NUMAUsage struct {
	NUMANodeID  int32       `json:"numaNodeID"`
	NodeUsage   ResourceMap `json:"nodeUsage,omitzero"`
	SystemUsage ResourceMap `json:"systemUsage,omitzero"`
}

// PodMetric is one pod in upstream's form.
type PodMetric struct {
	Name      string      `json:"name,omitempty"`
	Namespace string      `json:"namespace,omitempty"`
	PodUsage  ResourceMap `json:"podUsage,omitzero"`
	Priority  string      `json:"priority,omitempty"`
	QoS       string      `json:"qos,omitempty"`
	// Extensions are figures beside upstream's, in the place that it keeps for them.
	Extensions *PodExtensions `json:"extensions,omitempty"`
}

// PodExtensions are the extensions of ours, by keys of our domain.
type PodExtensions struct {
	Interference *PodInterference `json:"koord-rt.dev/interference,omitempty"`
}

// PodInterference says what a pod suffers from others and what it is held to because others suffer from it.
type PodInterference struct {
	Disturbed []Disturbance `json:"disturbed,omitempty"`
	Held      []Hold        `json:"held,omitempty"`
}

// Disturbance is one signal that is far above what is usual for the pod, in the signal's unit: a ratio, microseconds, or
// cycles per instruction.
type Disturbance struct {
	Signal string  `json:"signal"`
	Value  float64 `json:"value"`
	Usual  float64 `json:"usual"`
	Reason string  `json:"reason,omitempty"`
}

// Hold is one resource of which a pod gets no more than a limit. State is on trial, guilty or releasing.
type Hold struct {
	Resource string `json:"resource"`
	State    string `json:"state"`
	Reason   string `json:"reason,omitempty"`
}

// HostApplicationMetric is one host application.
type HostApplicationMetric struct {
	Name     string      `json:"name"`
	Usage    ResourceMap `json:"usage,omitzero"`
	Priority string      `json:"priority,omitempty"`
	QoS      string      `json:"qos,omitempty"`
}

// Prediction is an amount that was predicted.
type Prediction struct {
	Resource ResourceMap `json:"resource,omitzero"`
}

// ClassMetric is the total of some pods (documents).
type ClassMetric struct {
	Usage   ResourceList `json:"usage,omitempty"`
	Request ResourceList `json:"request,omitempty"`
}

// PodContainers is one pod with its containers (documents).
type PodContainers struct {
	PodRef     PodRef            `json:"podRef"`
	Containers []ContainerMetric `json:"containers,omitempty"`
}

// PodRef names a pod.
type PodRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// ContainerMetric is one container; Limit lacks what is not limited.
type ContainerMetric struct {
	Name  string       `json:"name"`
	Usage ResourceList `json:"usage,omitempty"`
	Limit ResourceList `json:"limit,omitempty"`
}
