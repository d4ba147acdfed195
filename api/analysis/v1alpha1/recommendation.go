// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Recommendation says, from what the pods of a workload have used, what its containers should ask for.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=recom,categories=koordinator
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Type",type="string",JSONPath=".spec.target.type"
// +kubebuilder:printcolumn:name="Kind",type="string",JSONPath=".spec.target.workload.kind"
// +kubebuilder:printcolumn:name="Name",type="string",JSONPath=".spec.target.workload.name"
// +kubebuilder:printcolumn:name="Provided",type="string",JSONPath=".status.conditions[?(@.type==\"RecommendationProvided\")].status"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type==\"RecommendationProvided\")].reason",priority=1
// +kubebuilder:printcolumn:name="LastUpdateTime",type="date",JSONPath=".status.updateTime"
type Recommendation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec RecommendationSpec `json:"spec,omitzero"`
	// +optional
	Status RecommendationStatus `json:"status,omitzero"`
}

// RecommendationList is a list of Recommendation.
//
// +kubebuilder:object:root=true
type RecommendationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Recommendation `json:"items"`
}

// RecommendationSpec says whose pods.
type RecommendationSpec struct {
	// Target are the pods.
	Target RecommendationTarget `json:"target"`
}

// RecommendationTargetType is target.type.
type RecommendationTargetType string

// Values of target.type.
const (
	TargetWorkload    RecommendationTargetType = "workload"
	TargetPodSelector RecommendationTargetType = "podSelector"
)

// RecommendationTarget is a workload or a set of pods.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'workload' || has(self.workload)",message="target.workload is needed with type workload"
// +kubebuilder:validation:XValidation:rule="self.type != 'podSelector' || has(self.podSelector)",message="target.podSelector is needed with type podSelector"
type RecommendationTarget struct {
	// Type says which of the two below counts.
	// +kubebuilder:validation:Enum=workload;podSelector
	Type RecommendationTargetType `json:"type"`
	// Workload owns the pods.
	// +optional
	Workload *CrossVersionObjectReference `json:"workload,omitempty"`
	// PodSelector selects them in the object's namespace.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
}

// CrossVersionObjectReference names a workload.
type CrossVersionObjectReference struct {
	// Kind of the workload.
	Kind string `json:"kind"`
	// Name of the workload.
	Name string `json:"name"`
	// APIVersion of the workload.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
}

// RecommendationStatus is what was found.
type RecommendationStatus struct {
	// PodStatus is what a pod should ask for.
	// +optional
	PodStatus *RecommendedPodStatus `json:"podStatus,omitempty"`
	// UpdateTime is when the status was last written.
	// +optional
	// +nullable
	UpdateTime *metav1.Time `json:"updateTime,omitempty"`
	// Conditions say whether enough was seen.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// History is what it was calculated from, for koord-manager's next start.
	// +optional
	History *RecommendationHistory `json:"history,omitempty"`
}

// Condition types of a Recommendation.
const (
	// ConditionProvided: podStatus says something.
	ConditionProvided = "RecommendationProvided"
	// ConditionObserved: there are pods, and nodes report what they use.
	ConditionObserved = "PodsObserved"
)

// RecommendationHistory is what was measured, in the manager's own form. Without it a recommendation begins anew.
type RecommendationHistory struct {
	// Generation of the spec whose pods were measured.
	Generation int64 `json:"generation"`
	// Containers has one text for each container.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Containers map[string]string `json:"containers,omitempty"`
}

// RecommendedPodStatus is what a pod should ask for.
type RecommendedPodStatus struct {
	// ContainerStatuses is one entry per container.
	// +optional
	ContainerStatuses []RecommendedContainerStatus `json:"containerStatuses,omitempty"`
}

// RecommendedContainerStatus is what a container should ask for.
type RecommendedContainerStatus struct {
	// ContainerName is its name.
	// +optional
	ContainerName string `json:"containerName,omitempty"`
	// Resources are the requests: the target.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// LowerBound (additive): requests below it are likely too little.
	// +optional
	LowerBound corev1.ResourceList `json:"lowerBound,omitempty"`
	// UpperBound (additive): requests above it are likely waste. The less is known, the further away both bounds are.
	// +optional
	UpperBound corev1.ResourceList `json:"upperBound,omitempty"`
}
