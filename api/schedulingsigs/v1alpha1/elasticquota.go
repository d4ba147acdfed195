// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LabelProjectedFrom names the group of the quota that an object was made from.
const LabelProjectedFrom = "koord-rt.dev/projected-from"

// QuotaConflict is the condition of a quota of another group whose name an object of this group has that was not made from it.
const QuotaConflict = "Conflict"

// QuotaRefused is the condition of a quota of another group whose object of this group the API server refuses, so that there is none or what it
// says is older. It is there only then.
const QuotaRefused = "Refused"

// ElasticQuota guarantees an amount and lets more be used while the cluster is idle.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes-sigs/scheduler-plugins/pull/52"
// +kubebuilder:resource:path=elasticquotas,singular=elasticquota,shortName=eq,categories=koordinator
// +kubebuilder:printcolumn:name="Min-CPU",type="string",JSONPath=".spec.min.cpu"
// +kubebuilder:printcolumn:name="Max-CPU",type="string",JSONPath=".spec.max.cpu"
// +kubebuilder:printcolumn:name="Hard-CPU",type="string",JSONPath=".spec.hard.cpu"
// +kubebuilder:printcolumn:name="Allocated-CPU",type="string",JSONPath=".status.allocatedQuota.cpu"
// +kubebuilder:printcolumn:name="Used-CPU",type="string",JSONPath=".status.used.cpu"
// +kubebuilder:printcolumn:name="Min-Memory",type="string",JSONPath=".spec.min.memory"
// +kubebuilder:printcolumn:name="Max-Memory",type="string",JSONPath=".spec.max.memory"
// +kubebuilder:printcolumn:name="Hard-Memory",type="string",JSONPath=".spec.hard.memory"
// +kubebuilder:printcolumn:name="Allocated-Memory",type="string",JSONPath=".status.allocatedQuota.memory"
// +kubebuilder:printcolumn:name="Used-Memory",type="string",JSONPath=".status.used.memory"
// +kubebuilder:printcolumn:name="Min-Pods",type="string",JSONPath=".spec.min.pods"
// +kubebuilder:printcolumn:name="Max-Pods",type="string",JSONPath=".spec.max.pods"
// +kubebuilder:printcolumn:name="Hard-Pods",type="string",JSONPath=".spec.hard.pods"
// +kubebuilder:printcolumn:name="Allocated-Pods",type="string",JSONPath=".status.allocatedQuota.pods"
// +kubebuilder:printcolumn:name="Used-Pods",type="string",JSONPath=".status.used.pods"
// +kubebuilder:printcolumn:name="Priority",type="integer",JSONPath=".spec.priority"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ElasticQuota struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ElasticQuotaSpec `json:"spec,omitzero"`
	// +optional
	Status ElasticQuotaStatus `json:"status,omitzero"`
}

// ElasticQuotaList is a list of ElasticQuota.
//
// +kubebuilder:object:root=true
type ElasticQuotaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElasticQuota `json:"items"`
}

// ElasticQuotaSpec is what a quota gives. It is the same in three groups. The rules name resources, because what a rule over all
// keys may cost is beyond the API server's budget.
//
// +kubebuilder:validation:XValidation:rule="!has(self.min) || !has(self.max) || ['cpu', 'memory', 'pods', 'ephemeral-storage', 'koordinator.sh/gpu', 'nvidia.com/gpu'].all(r, !(r in self.min) || !(r in self.max) || quantity(string(self.min[r])).compareTo(quantity(string(self.max[r]))) <= 0)",message="min must not be above max: what is guaranteed is part of what may be used"
// +kubebuilder:validation:XValidation:rule="!has(self.min) || !has(self.hard) || ['cpu', 'memory', 'pods', 'ephemeral-storage', 'koordinator.sh/gpu', 'nvidia.com/gpu'].all(r, !(r in self.min) || !(r in self.hard) || quantity(string(self.min[r])).compareTo(quantity(string(self.hard[r]))) <= 0)",message="min must not be above hard: what is guaranteed is part of what is never exceeded"
type ElasticQuotaSpec struct {
	// Min is guaranteed.
	// +optional
	Min corev1.ResourceList `json:"min,omitempty"`
	// Max may be used while the cluster is idle; it can be taken back down to min.
	// +optional
	Max corev1.ResourceList `json:"max,omitempty"`
	// Hard (documents) is never exceeded: the cap of a resource is the lower of hard and max.
	// +optional
	Hard corev1.ResourceList `json:"hard,omitempty"`
	// Priority (documents) orders who gets what is idle, higher first. It never touches another quota's min. Default 0.
	// +optional
	Priority int32 `json:"priority,omitempty"`
}

// ElasticQuotaStatus is what is used of a quota. It is the same in three groups.
type ElasticQuotaStatus struct {
	// Used is the sum of the requests of pods that are bound or being bound.
	// +optional
	Used corev1.ResourceList `json:"used,omitempty"`
	// AllocatedQuota (documents) is what can be used now.
	// +optional
	AllocatedQuota corev1.ResourceList `json:"allocatedQuota,omitempty"`
	// PodAllocatedQuota (documents) is the sum of the requests of pods that are bound.
	// +optional
	PodAllocatedQuota corev1.ResourceList `json:"podAllocatedQuota,omitempty"`
	// Conditions of a quota of koordinator.sh or quota.koordinator.sh: Conflict is true while an object of scheduling.sigs.k8s.io that was not
	// made from it has its name, and counts instead.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NewElasticQuota is the canonical object for a quota of another group: same namespace, name, labels, annotations and spec.
func NewElasticQuota(group string, from metav1.ObjectMeta, spec ElasticQuotaSpec) *ElasticQuota {
	q := &ElasticQuota{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "ElasticQuota"},
		Spec:     *spec.DeepCopy(),
	}
	from = *from.DeepCopy()
	q.Namespace, q.Name, q.Labels, q.Annotations = from.Namespace, from.Name, from.Labels, from.Annotations
	if q.Labels == nil {
		q.Labels = map[string]string{}
	}
	q.Labels[LabelProjectedFrom] = group
	delete(q.Annotations, corev1.LastAppliedConfigAnnotation)
	return q
}
