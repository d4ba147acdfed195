// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reservation keeps resources of a node free for pods that will come.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName=rsv,categories=koordinator
// +kubebuilder:printcolumn:name="Phase",type="string",JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Node",type="string",JSONPath=".status.nodeName"
// +kubebuilder:printcolumn:name="TTL",type="string",JSONPath=".spec.ttl"
// +kubebuilder:printcolumn:name="Expires",type="string",JSONPath=".spec.expires"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Scheduled')].message",priority=1
type Reservation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ReservationSpec `json:"spec,omitzero"`
	// +optional
	Status ReservationStatus `json:"status,omitzero"`
}

// ReservationList is a list of Reservation.
//
// +kubebuilder:object:root=true
type ReservationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Reservation `json:"items"`
}

// ReservationSpec says what is kept, where, for whom and for how long.
type ReservationSpec struct {
	// Template is the pod that room is kept for: its requests, affinity, tolerations and ports. An image is not needed.
	// +kubebuilder:validation:Required
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Template *corev1.PodTemplateSpec `json:"template"`
	// Owners may use the room: a pod that matches any entry, and all that the entry says.
	// +kubebuilder:validation:MinItems=1
	Owners []ReservationOwner `json:"owners"`
	// TTL, counted from creation, is how long the room is kept at most; 0 is for ever.
	// +optional
	// +kubebuilder:default="24h"
	TTL *metav1.Duration `json:"ttl,omitempty"`
	// Expires is when the room is given up; it counts before ttl.
	// +optional
	Expires *metav1.Time `json:"expires,omitempty"`
	// PreAllocation waits until the whole amount is free and takes it then. With allocatePolicy Restricted, or with a
	// preAllocationPolicy, room is taken that running pods which match the owners still use.
	// +optional
	PreAllocation bool `json:"preAllocation,omitempty"`
	// PreAllocationPolicy says whose room may be taken in advance.
	// +optional
	PreAllocationPolicy *PreAllocationPolicy `json:"preAllocationPolicy,omitempty"`
	// AllocateOnce ends the reservation with its first owner. Default true.
	// +optional
	// +kubebuilder:default=true
	AllocateOnce *bool `json:"allocateOnce,omitempty"`
	// AllocatePolicy: an owner that needs more may take the rest from the node (Aligned), or must not take from the node
	// what is reserved here (Restricted).
	// +optional
	// +kubebuilder:validation:Enum=Aligned;Restricted
	AllocatePolicy ReservationAllocatePolicy `json:"allocatePolicy,omitempty"`
	// Unschedulable lets no further owner in.
	// +optional
	Unschedulable bool `json:"unschedulable,omitempty"`
	// Taints must be tolerated by owners.
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
}

// ReservationAllocatePolicy is allocatePolicy.
type ReservationAllocatePolicy string

// Values of allocatePolicy; the empty one means Aligned.
const (
	AllocateAligned    ReservationAllocatePolicy = "Aligned"
	AllocateRestricted ReservationAllocatePolicy = "Restricted"
)

// PreAllocationPolicy says which running pods' room may be reserved.
type PreAllocationPolicy struct {
	// Mode Default takes pods that match the owners, Cluster those that are marked in the whole cluster.
	// +optional
	// +kubebuilder:validation:Enum=Default;Cluster
	// +kubebuilder:default="Default"
	Mode string `json:"mode,omitempty"`
	// EnableMultiple allows the room of several pods.
	// +optional
	// +kubebuilder:default=false
	EnableMultiple bool `json:"enableMultiple,omitempty"`
}

// ReservationOwner is a pod by name, by its controller or by labels; what is given must all match, and an empty entry matches
// every pod.
type ReservationOwner struct {
	// Object is the pod itself.
	// +optional
	Object *corev1.ObjectReference `json:"object,omitempty"`
	// Controller owns the pod.
	// +optional
	Controller *ReservationControllerReference `json:"controller,omitempty"`
	// LabelSelector matches the pod's labels.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// ReservationControllerReference is a controller and its namespace.
type ReservationControllerReference struct {
	metav1.OwnerReference `json:",inline"`
	// Namespace of the controller.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// ReservationTemplateSpec is what a reservation is made from.
type ReservationTemplateSpec struct {
	// Standard metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec of the reservation.
	// +optional
	Spec ReservationSpec `json:"spec,omitzero"`
}

// ReservationStatus is written by the scheduler.
type ReservationStatus struct {
	// Phase of the reservation.
	// +optional
	// +kubebuilder:default="Pending"
	Phase ReservationPhase `json:"phase,omitempty"`
	// Conditions Scheduled and Ready; the message says what is missing.
	// +optional
	Conditions []ReservationCondition `json:"conditions,omitempty"`
	// CurrentOwners are the pods that use the room.
	// +optional
	CurrentOwners []corev1.ObjectReference `json:"currentOwners,omitempty"`
	// NodeName is the node that the room is on.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Allocatable is what is kept.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// Allocated is what owners use of it.
	// +optional
	Allocated corev1.ResourceList `json:"allocated,omitempty"`
}

// ReservationPhase is status.phase.
type ReservationPhase string

// Phases: Pending until a node is found, Waiting while the room there is not free yet, Available for owners, Succeeded when no
// further owner is let in, Failed when it expired or was given up.
const (
	ReservationPending   ReservationPhase = "Pending"
	ReservationWaiting   ReservationPhase = "Waiting"
	ReservationAvailable ReservationPhase = "Available"
	ReservationSucceeded ReservationPhase = "Succeeded"
	ReservationFailed    ReservationPhase = "Failed"
)

// ReservationCondition is one condition.
type ReservationCondition struct {
	// Type is Scheduled or Ready.
	// +optional
	Type string `json:"type,omitempty"`
	// Status is True, False or Unknown.
	// +optional
	Status metav1.ConditionStatus `json:"status,omitempty"`
	// Reason is one word for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says it to people.
	// +optional
	Message string `json:"message,omitempty"`
	// LastProbeTime is when it was last looked at.
	// +optional
	// +nullable
	LastProbeTime metav1.Time `json:"lastProbeTime,omitempty"`
	// LastTransitionTime is when status last changed.
	// +optional
	// +nullable
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
}

// Types of conditions of a reservation, and their reasons.
const (
	ReservationScheduled = "Scheduled"
	ReservationReady     = "Ready"

	ReasonScheduled     = "Scheduled"
	ReasonUnschedulable = "Unschedulable"
	ReasonAvailable     = "Available"
	ReasonSucceeded     = "Succeeded"
	ReasonExpired       = "Expired"
)
