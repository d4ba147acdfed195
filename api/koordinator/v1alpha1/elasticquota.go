// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
)

// ElasticQuota of koordinator.sh is the quota of its namespace as one of the documents writes it. It has the content of the canonical group's and becomes an object there; kubectl finds
// that one as elasticquota, this one as koordelasticquota.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=koordelasticquotas,singular=koordelasticquota,shortName=keq,categories=koordinator
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
	Spec sigsv1alpha1.ElasticQuotaSpec `json:"spec,omitzero"`
	// +optional
	Status sigsv1alpha1.ElasticQuotaStatus `json:"status,omitzero"`
}

// ElasticQuotaList is a list of ElasticQuota.
//
// +kubebuilder:object:root=true
type ElasticQuotaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElasticQuota `json:"items"`
}

// Canonical is the object of the canonical group that says the same.
func (q *ElasticQuota) Canonical() *sigsv1alpha1.ElasticQuota {
	return sigsv1alpha1.NewElasticQuota(GroupVersion.Group, q.ObjectMeta, q.Spec)
}
