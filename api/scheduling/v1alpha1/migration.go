// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodMigrationJob moves one pod: it keeps room for it elsewhere, evicts it, and sees it run again.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName=pmj,categories=koordinator
// +kubebuilder:printcolumn:name="Phase",type="string",JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.status"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Node",type="string",JSONPath=".status.nodeName"
// +kubebuilder:printcolumn:name="Reservation",type="string",JSONPath=".spec.reservationOptions.reservationRef.name"
// +kubebuilder:printcolumn:name="PodNamespace",type="string",JSONPath=".spec.podRef.namespace"
// +kubebuilder:printcolumn:name="Pod",type="string",JSONPath=".spec.podRef.name"
// +kubebuilder:printcolumn:name="NewPod",type="string",JSONPath=".status.podRef.name"
// +kubebuilder:printcolumn:name="TTL",type="string",JSONPath=".spec.ttl"
type PodMigrationJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec PodMigrationJobSpec `json:"spec,omitzero"`
	// +optional
	Status PodMigrationJobStatus `json:"status,omitzero"`
}

// PodMigrationJobList is a list of PodMigrationJob.
//
// +kubebuilder:object:root=true
type PodMigrationJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodMigrationJob `json:"items"`
}

// PodMigrationJobSpec says which pod and how.
type PodMigrationJobSpec struct {
	// Paused holds the job.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// TTL is how long the job may take.
	// +optional
	TTL *metav1.Duration `json:"ttl,omitempty"`
	// Mode ReservationFirst evicts when room is kept, EvictDirectly at once; empty, what the descheduler is told.
	// +optional
	// +kubebuilder:validation:Enum="";ReservationFirst;EvictDirectly
	Mode PodMigrationJobMode `json:"mode,omitempty"`
	// PodRef is the pod.
	// +kubebuilder:validation:XValidation:rule="has(self.name) && size(self.name) > 0 && has(self.__namespace__) && size(self.__namespace__) > 0",message="give both name and namespace of the pod that is to be moved"
	// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind in ['', 'Pod']",message="only pods are moved: kind is Pod, or left out"
	PodRef *corev1.ObjectReference `json:"podRef"`
	// ReservationOptions are about the room that is kept for it.
	// +optional
	ReservationOptions *PodMigrateReservationOptions `json:"reservationOptions,omitempty"`
	// DeleteOptions go with the eviction.
	// +optional
	DeleteOptions *metav1.DeleteOptions `json:"deleteOptions,omitempty"`
}

// PodMigrationJobMode is spec.mode.
type PodMigrationJobMode string

// Values of spec.mode.
const (
	MigrateReservationFirst PodMigrationJobMode = "ReservationFirst"
	MigrateEvictDirectly    PodMigrationJobMode = "EvictDirectly"
)

// PodMigrateReservationOptions are about the room that is kept.
type PodMigrateReservationOptions struct {
	// ReservationRef names one that is there; else one is made.
	// +optional
	ReservationRef *corev1.ObjectReference `json:"reservationRef,omitempty"`
	// Template is what it is made from; absent, from the pod.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Template *ReservationTemplateSpec `json:"template,omitempty"`
	// PreemptionOptions, when present, allow pods to be preempted for it.
	// +optional
	PreemptionOptions *PodMigrationJobPreemptionOptions `json:"preemptionOptions,omitempty"`
}

// PodMigrationJobPreemptionOptions has no fields, as Koordinator's.
type PodMigrationJobPreemptionOptions struct{}

// PodMigrationJobStatus is how far the job is.
type PodMigrationJobStatus struct {
	// Phase of the job.
	// +optional
	Phase PodMigrationJobPhase `json:"phase,omitempty"`
	// Status is the condition that the job is at.
	// +optional
	Status string `json:"status,omitempty"`
	// Reason is one word for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says it to people.
	// +optional
	Message string `json:"message,omitempty"`
	// Conditions of the job.
	// +optional
	Conditions []PodMigrationJobCondition `json:"conditions,omitempty"`
	// NodeName is where the pod was.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// PodRef is the pod that took its place.
	// +optional
	PodRef *corev1.ObjectReference `json:"podRef,omitempty"`
	// PreemptedPodsRef are pods that were preempted for it.
	// +optional
	PreemptedPodsRef []corev1.ObjectReference `json:"preemptedPodsRef,omitempty"`
	// PreemptedPodsReservations are what is kept for those.
	// +optional
	PreemptedPodsReservations []PodMigrationJobPreemptedReservation `json:"preemptedPodsReservation,omitempty"`
}

// PodMigrationJobPhase is status.phase.
type PodMigrationJobPhase string

// Phases of a job; Aborted was ended by somebody.
const (
	MigrationPending   PodMigrationJobPhase = "Pending"
	MigrationRunning   PodMigrationJobPhase = "Running"
	MigrationSucceeded PodMigrationJobPhase = "Succeeded"
	MigrationFailed    PodMigrationJobPhase = "Failed"
	MigrationAborted   PodMigrationJobPhase = "Aborted"
)

// PodMigrationJobPreemptedReservation is what is kept for a pod that was preempted.
type PodMigrationJobPreemptedReservation struct {
	// Namespace of the reservation.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the reservation.
	// +optional
	Name string `json:"name,omitempty"`
	// NodeName is its node.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Phase of the reservation.
	// +optional
	Phase string `json:"phase,omitempty"`
	// PreemptedPodRef is the pod that was preempted.
	// +optional
	PreemptedPodRef *corev1.ObjectReference `json:"preemptedPodRef,omitempty"`
	// PodsRef are the pods that took its place.
	// +optional
	PodsRef []corev1.ObjectReference `json:"podsRef,omitempty"`
}

// PodMigrationJobCondition is one condition.
type PodMigrationJobCondition struct {
	// Type of the condition.
	Type string `json:"type"`
	// Status is True, False or Unknown.
	Status metav1.ConditionStatus `json:"status"`
	// LastProbeTime is when it was last looked at.
	// +optional
	// +nullable
	LastProbeTime metav1.Time `json:"lastProbeTime,omitempty"`
	// LastTransitionTime is when status last changed.
	// +optional
	// +nullable
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// Reason is one word for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says it to people.
	// +optional
	Message string `json:"message,omitempty"`
}
