// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterNetworkTopology says by which labels of nodes the layers of the network are told.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName=cnt,categories=koordinator
// +kubebuilder:printcolumn:name="First-Layer",type="string",JSONPath=".spec.networkTopologySpec[0].topologyLayer",description="The layer that is listed first"
// +kubebuilder:printcolumn:name="Above-Nodes",type="string",JSONPath=".spec.networkTopologySpec[?(@.topologyLayer=='NodeTopologyLayer')].parentTopologyLayer",description="The layer that nodes are in"
// +kubebuilder:printcolumn:name="Nodes",type="integer",JSONPath=".status.detailStatus[?(@.topologyInfo.topologyLayer=='ClusterTopologyLayer')].nodeNum",description="Nodes that the scheduler has found in it"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ClusterNetworkTopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ClusterNetworkTopologySpec `json:"spec,omitzero"`
	// +optional
	Status ClusterNetworkTopologyStatus `json:"status,omitzero"`
}

// ClusterNetworkTopologyList is a list of ClusterNetworkTopology.
//
// +kubebuilder:object:root=true
type ClusterNetworkTopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterNetworkTopology `json:"items"`
}

// TopologyLayer is a layer's name.
type TopologyLayer string

// Layers that are always there: the root and the leaves.
const (
	ClusterTopologyLayer TopologyLayer = "ClusterTopologyLayer"
	NodeTopologyLayer    TopologyLayer = "NodeTopologyLayer"
)

// ClusterNetworkTopologySpec lists the layers.
type ClusterNetworkTopologySpec struct {
	// NetworkTopologySpec are the layers, in any order; the root needs no entry.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="[self.map(l, l.topologyLayer)].all(names, names.all(n, names.indexOf(n) == names.lastIndexOf(n)))",message="each layer stands once; keep one of the entries with the same topologyLayer"
	// +kubebuilder:validation:XValidation:rule="self.all(l, !has(l.parentTopologyLayer) || l.parentTopologyLayer in ['', 'ClusterTopologyLayer'] || self.exists(m, m.topologyLayer == l.parentTopologyLayer))",message="a parentTopologyLayer is no layer: name one that is listed as topologyLayer, or ClusterTopologyLayer"
	NetworkTopologySpec []NetworkTopologySpec `json:"networkTopologySpec"`
}

// NetworkTopologySpec is one layer. Names are as long as values of labels, which bounds what it costs to compare them.
//
// +kubebuilder:validation:XValidation:rule="!has(self.parentTopologyLayer) || self.parentTopologyLayer != self.topologyLayer && self.parentTopologyLayer != 'NodeTopologyLayer'",message="parentTopologyLayer is the layer above: it is neither the layer itself nor NodeTopologyLayer, below which there is none"
// +kubebuilder:validation:XValidation:rule="self.topologyLayer != 'ClusterTopologyLayer' || !has(self.parentTopologyLayer) || size(self.parentTopologyLayer) == 0",message="ClusterTopologyLayer is the root and has no parentTopologyLayer"
type NetworkTopologySpec struct {
	// TopologyLayer is its name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	TopologyLayer TopologyLayer `json:"topologyLayer"`
	// ParentTopologyLayer is the one above.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ParentTopologyLayer TopologyLayer `json:"parentTopologyLayer,omitempty"`
	// LabelKey are the labels of which the first that a node has says where it belongs.
	// +optional
	// +kubebuilder:validation:items:MinLength=1
	LabelKey []string `json:"labelKey,omitempty"`
}

// ClusterNetworkTopologyStatus is what was found; the scheduler writes it.
type ClusterNetworkTopologyStatus struct {
	// DetailStatus is one entry per place.
	// +optional
	DetailStatus []ClusterNetworkTopologyDetail `json:"detailStatus,omitempty"`
}

// ClusterNetworkTopologyDetail is one place of a layer.
type ClusterNetworkTopologyDetail struct {
	// TopologyInfo is the place.
	TopologyInfo TopologyInfo `json:"topologyInfo"`
	// ParentTopologyInfo is the place above.
	// +optional
	ParentTopologyInfo *TopologyInfo `json:"parentTopologyInfo,omitempty"`
	// ChildTopologyLayer is the layer below.
	// +optional
	ChildTopologyLayer TopologyLayer `json:"childTopologyLayer,omitempty"`
	// ChildTopologyNames are the places below.
	// +optional
	ChildTopologyNames []string `json:"childTopologyNames,omitempty"`
	// NodeNum counts the nodes below.
	NodeNum int32 `json:"nodeNum"`
}

// TopologyInfo names a place.
type TopologyInfo struct {
	// TopologyLayer is its layer.
	TopologyLayer TopologyLayer `json:"topologyLayer"`
	// TopologyName is its name.
	TopologyName string `json:"topologyName"`
}
