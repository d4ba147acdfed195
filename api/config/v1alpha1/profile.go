// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ClusterColocationProfile changes the pods that it selects when they are created. A pod is selected when both selectors,
// where given, match.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName=ccp,categories=koordinator
// +kubebuilder:printcolumn:name="QoS",type="string",JSONPath=".spec.qosClass"
// +kubebuilder:printcolumn:name="PriorityClass",type="string",JSONPath=".spec.priorityClassName"
// +kubebuilder:printcolumn:name="Priority",type="integer",JSONPath=".spec.koordinatorPriority"
// +kubebuilder:printcolumn:name="Scheduler",type="string",JSONPath=".spec.schedulerName"
// +kubebuilder:printcolumn:name="Probability",type="string",JSONPath=".spec.probability"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ClusterColocationProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ClusterColocationProfileSpec `json:"spec,omitzero"`
	// +optional
	Status ClusterColocationProfileStatus `json:"status,omitzero"`
}

// ClusterColocationProfileList is a list of ClusterColocationProfile.
//
// +kubebuilder:object:root=true
type ClusterColocationProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterColocationProfile `json:"items"`
}

// ClusterColocationProfileSpec says which pods and what is done to them.
type ClusterColocationProfileSpec struct {
	// NamespaceSelector selects namespaces by label; absent, every namespace.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Selector selects pods by label; absent, every pod.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Probability is the share of the selected pods that are changed: a whole number or a string of percent, 0 to 100.
	// Default 100.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 100 : self.matches('^(100|[0-9]{1,2})%$')",message="probability is a whole number 0..100 or a percentage such as 50%"
	Probability *intstr.IntOrString `json:"probability,omitempty"`
	// QoSClass becomes the label koordinator.sh/qosClass.
	// +optional
	// +kubebuilder:validation:Enum=LSE;LSR;LS;BE;SYSTEM
	QoSClass string `json:"qosClass,omitempty"`
	// PriorityClassName becomes the pod's; its value, the pod's priority.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// KoordinatorPriority becomes the label koordinator.sh/priority: the order within a priority class.
	// +optional
	KoordinatorPriority *int32 `json:"koordinatorPriority,omitempty"`
	// Labels are set on the pod.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are set on the pod.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// LabelKeysMapping sets the label of each value to what the label of its key is.
	// +optional
	LabelKeysMapping map[string]string `json:"labelKeysMapping,omitempty"`
	// AnnotationKeysMapping sets the annotation of each value to what the annotation of its key is.
	// +optional
	AnnotationKeysMapping map[string]string `json:"annotationKeysMapping,omitempty"`
	// LabelSuffixes appends each value to the label of its key.
	// +optional
	LabelSuffixes map[string]string `json:"labelSuffixes,omitempty"`
	// SchedulerName becomes the pod's.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SchedulerName string `json:"schedulerName,omitempty"`
	// Patch is a strategic merge patch of the pod. Its fields are the pod's, and are checked with the pod.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Patch runtime.RawExtension `json:"patch,omitzero"`
}

// ClusterColocationProfileStatus is empty, as Koordinator's.
type ClusterColocationProfileStatus struct{}
