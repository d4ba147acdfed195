// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodGroup are pods that start together or not at all.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes-sigs/scheduler-plugins/pull/52"
// +kubebuilder:resource:shortName=pg,categories=koordinator
// +kubebuilder:printcolumn:name="Phase",type="string",JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="Min-Member",type="integer",JSONPath=".spec.minMember"
// +kubebuilder:printcolumn:name="Scheduled",type="integer",JSONPath=".status.scheduled"
// +kubebuilder:printcolumn:name="Running",type="integer",JSONPath=".status.running"
// +kubebuilder:printcolumn:name="Succeeded",type="integer",JSONPath=".status.succeeded"
// +kubebuilder:printcolumn:name="Failed",type="integer",JSONPath=".status.failed"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type PodGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec PodGroupSpec `json:"spec,omitzero"`
	// +optional
	Status PodGroupStatus `json:"status,omitzero"`
}

// PodGroupList is a list of PodGroup.
//
// +kubebuilder:object:root=true
type PodGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodGroup `json:"items"`
}

// PodGroupSpec says how many must fit.
type PodGroupSpec struct {
	// MinMember is how many pods must fit at once.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinMember int32 `json:"minMember,omitempty"`
	// MinResources is what they need together.
	// +optional
	MinResources corev1.ResourceList `json:"minResources,omitempty"`
	// ScheduleTimeoutSeconds is how long the first waits for the last.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ScheduleTimeoutSeconds *int32 `json:"scheduleTimeoutSeconds,omitempty"`
}

// PodGroupPhase is status.phase.
type PodGroupPhase string

// Phases of a pod group.
const (
	PodGroupPending       PodGroupPhase = "Pending"
	PodGroupPreScheduling PodGroupPhase = "PreScheduling"
	PodGroupScheduling    PodGroupPhase = "Scheduling"
	PodGroupScheduled     PodGroupPhase = "Scheduled"
	PodGroupRunning       PodGroupPhase = "Running"
	PodGroupUnknown       PodGroupPhase = "Unknown"
	PodGroupFinished      PodGroupPhase = "Finished"
	PodGroupFailed        PodGroupPhase = "Failed"
)

// PodGroupStatus is how far the pods are; the scheduler writes it.
type PodGroupStatus struct {
	// Phase of the group.
	// +optional
	Phase PodGroupPhase `json:"phase,omitempty"`
	// OccupiedBy is the UID of the workload whose pods they are.
	// +optional
	OccupiedBy string `json:"occupiedBy,omitempty"`
	// Scheduled counts pods with a node.
	// +optional
	Scheduled int32 `json:"scheduled,omitempty"`
	// Running counts pods that run.
	// +optional
	Running int32 `json:"running,omitempty"`
	// Succeeded counts pods that ended well.
	// +optional
	Succeeded int32 `json:"succeeded,omitempty"`
	// Failed counts pods that did not.
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// ScheduleStartTime is when the first was tried.
	// +optional
	// +nullable
	ScheduleStartTime *metav1.Time `json:"scheduleStartTime,omitempty"`
}
