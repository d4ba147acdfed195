// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ScheduleExplanation asks why a pod, a job or a gang is not scheduled, and is answered in its status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=sched-exp,categories=koordinator
// +kubebuilder:printcolumn:name="Question",type="string",JSONPath=".spec.questionObjectKey"
// +kubebuilder:printcolumn:name="Schedulable",type="boolean",JSONPath=".status.schedulable"
// +kubebuilder:printcolumn:name="After-Preemption",type="boolean",JSONPath=".status.schedulableAfterPreemption"
// +kubebuilder:printcolumn:name="Updated",type="date",JSONPath=".status.lastUpdateTime"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ScheduleExplanation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ScheduleExplanationSpec `json:"spec,omitzero"`
	// +optional
	Status ScheduleExplanationStatus `json:"status,omitzero"`
}

// ScheduleExplanationList is a list of ScheduleExplanation.
//
// +kubebuilder:object:root=true
type ScheduleExplanationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ScheduleExplanation `json:"items"`
}

// ScheduleExplanationSpec is the question.
type ScheduleExplanationSpec struct {
	// QuestionObjectKey is namespace/name of a pod or job, or the id of a gang group.
	// +optional
	QuestionObjectKey string `json:"questionObjectKey,omitempty"`
	// QuestionObjectTemplate is a pod that is not there. Koordinator does not support it.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	QuestionObjectTemplate *corev1.PodTemplateSpec `json:"questionObjectTemplate,omitempty"`
	// TTL is how long the object is kept; 0 is for ever.
	// +optional
	// +kubebuilder:default="24h"
	TTL *metav1.Duration `json:"ttl,omitempty"`
}

// ScheduleExplanationStatus is the answer.
type ScheduleExplanationStatus struct {
	// Schedulable says that it fits now.
	// +optional
	Schedulable bool `json:"schedulable,omitempty"`
	// SchedulableAfterPreemption says that it would fit if the named victims went.
	// +optional
	SchedulableAfterPreemption bool `json:"schedulableAfterPreemption,omitempty"`
	// FailedMessage is why not.
	// +optional
	FailedMessage string `json:"failedMessage,omitempty"`
	// LastUpdateTime is when the answer was written.
	// +optional
	// +nullable
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`
	// DetailedExplanation is one entry per part of the network.
	// +optional
	DetailedExplanation []TopologyDomainExplanation `json:"detailedExplanation,omitempty"`
}

// TopologyDomainExplanation is the answer for one part of the network.
type TopologyDomainExplanation struct {
	// TopologyDomain is the part.
	// +optional
	TopologyDomain string `json:"topologyDomain,omitempty"`
	// Schedulable as in the status.
	// +optional
	Schedulable bool `json:"schedulable,omitempty"`
	// SchedulableAfterPreemption as in the status.
	// +optional
	SchedulableAfterPreemption bool `json:"schedulableAfterPreemption,omitempty"`
	// FailedMessage as in the status.
	// +optional
	FailedMessage string `json:"failedMessage,omitempty"`
	// ScheduleExplanation is what happens without preemption.
	// +optional
	ScheduleExplanation NodeLevelExplanation `json:"scheduleExplanation,omitzero"`
	// NodePossibleVictims are the pods that could go.
	// +optional
	NodePossibleVictims []NodePossibleVictims `json:"nodePossibleVictims,omitempty"`
	// PreemptExplanation is what happens with preemption.
	// +optional
	PreemptExplanation NodeLevelExplanation `json:"preemptExplanation,omitzero"`
}

// NodeLevelExplanation is the answer by node.
type NodeLevelExplanation struct {
	// Schedulable as in the status.
	// +optional
	Schedulable bool `json:"schedulable,omitempty"`
	// FailedMessage as in the status.
	// +optional
	FailedMessage string `json:"failedMessage,omitempty"`
	// FeasibleSchedulingResult is where the pods that fit would go.
	// +optional
	FeasibleSchedulingResult []SchedulingResult `json:"feasibleSchedulingResult,omitempty"`
	// NodeFailedDetails is why nodes were refused.
	// +optional
	NodeFailedDetails []NodeFailedDetail `json:"nodeFailedDetails,omitempty"`
}

// PodName names a pod.
type PodName struct {
	// Namespace of the pod.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the pod.
	// +optional
	Name string `json:"name,omitempty"`
	// UID of the pod.
	// +optional
	UID string `json:"uid,omitempty"`
}

// SchedulingResult is where a pod would go.
type SchedulingResult struct {
	PodName `json:",inline"`
	// NodeName is the node.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
}

// NodeFailedDetail is one reason and its nodes.
type NodeFailedDetail struct {
	// FailedPlugin refused.
	// +optional
	FailedPlugin string `json:"failedPlugin,omitempty"`
	// Reason that it gave.
	// +optional
	Reason string `json:"reason,omitempty"`
	// PreemptMightHelp says that fewer pods on the node could change it.
	// +optional
	PreemptMightHelp bool `json:"preemptMightHelp,omitempty"`
	// FailedNodes are the nodes.
	// +optional
	FailedNodes []string `json:"failedNodes,omitempty"`
}

// NodePossibleVictims are pods of one node that could go.
type NodePossibleVictims struct {
	// NodeName is the node.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// PossibleVictims are the pods.
	// +optional
	PossibleVictims []PossibleVictim `json:"possibleVictims,omitempty"`
}

// PossibleVictim is one pod that could go.
type PossibleVictim struct {
	PodName `json:",inline"`
	// IsNominatedPod says that it is only expected there.
	// +optional
	IsNominatedPod bool `json:"isNominatedPod,omitempty"`
}
