// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PodMetric is one pod in Koordinator's form.
type PodMetric struct {
	// Name of the pod.
	// +optional
	Name string `json:"name,omitempty"`
	// Namespace of the pod.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// PodUsage is what it uses.
	// +optional
	PodUsage ResourceMap `json:"podUsage,omitzero"`
	// Priority is its class: koord-prod, koord-mid, koord-batch, koord-free, or empty.
	// +optional
	Priority string `json:"priority,omitempty"`
	// QoS is its class: LSE, LSR, LS, BE, SYSTEM, or empty.
	// +optional
	QoS string `json:"qos,omitempty"`
	// Extensions are figures of others, by keys of their domain.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Extensions *runtime.RawExtension `json:"extensions,omitempty"`
}

// HostApplicationMetric is one application outside Kubernetes.
type HostApplicationMetric struct {
	// Name as in the NodeSLO.
	// +optional
	Name string `json:"name,omitempty"`
	// Usage is what it uses.
	// +optional
	Usage ResourceMap `json:"usage,omitzero"`
	// Priority is its class.
	// +optional
	Priority string `json:"priority,omitempty"`
	// QoS is its class.
	// +optional
	QoS string `json:"qos,omitempty"`
}

// Prediction is an amount that was predicted.
type Prediction struct {
	// Resource is the amount.
	// +optional
	Resource ResourceMap `json:"resource,omitzero"`
}

// ClassMetric is the total of some pods (documents).
type ClassMetric struct {
	// Usage is what they use.
	// +optional
	Usage corev1.ResourceList `json:"usage,omitempty"`
	// Request is what they ask for; batch and mid resources count as CPU and memory.
	// +optional
	Request corev1.ResourceList `json:"request,omitempty"`
}

// PodContainers is one pod with its containers (documents).
type PodContainers struct {
	// PodRef names the pod.
	PodRef PodRef `json:"podRef"`
	// Containers of the pod.
	// +optional
	Containers []ContainerMetric `json:"containers,omitempty"`
}

// PodRef names a pod.
type PodRef struct {
	// Namespace of the pod.
	Namespace string `json:"namespace"`
	// Name of the pod.
	Name string `json:"name"`
}

// ContainerMetric is one container.
type ContainerMetric struct {
	// Name of the container.
	Name string `json:"name"`
	// Usage is what it uses.
	// +optional
	Usage corev1.ResourceList `json:"usage,omitempty"`
	// Limit lacks what is not limited.
	// +optional
	Limit corev1.ResourceList `json:"limit,omitempty"`
}
