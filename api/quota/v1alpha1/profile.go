// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ElasticQuotaProfile makes a root quota as large as the nodes that it selects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=eqp,categories=koordinator
// +kubebuilder:printcolumn:name="Quota",type="string",JSONPath=".spec.quotaName"
// +kubebuilder:printcolumn:name="Ratio",type="string",JSONPath=".spec.resourceRatio"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ElasticQuotaProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ElasticQuotaProfileSpec `json:"spec,omitzero"`
	// +optional
	Status ElasticQuotaProfileStatus `json:"status,omitzero"`
}

// ElasticQuotaProfileList is a list of ElasticQuotaProfile.
//
// +kubebuilder:object:root=true
type ElasticQuotaProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElasticQuotaProfile `json:"items"`
}

// ElasticQuotaProfileSpec says which quota and which nodes.
type ElasticQuotaProfileSpec struct {
	// QuotaName is the quota that is made.
	// +kubebuilder:validation:MinLength=1
	QuotaName string `json:"quotaName"`
	// QuotaLabels are put on it.
	// +optional
	QuotaLabels map[string]string `json:"quotaLabels,omitempty"`
	// ResourceRatio is the part of the nodes that is given, above 0 and up to 1; the rest makes up for what is lost between
	// nodes. Default 1.
	// +optional
	// +kubebuilder:validation:Pattern=`^(0?\.[0-9]+|1(\.0+)?)$`
	ResourceRatio *string `json:"resourceRatio,omitempty"`
	// NodeSelector selects the nodes.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector"`
}

// ElasticQuotaProfileStatus is empty, as Koordinator's.
type ElasticQuotaProfileStatus struct{}
