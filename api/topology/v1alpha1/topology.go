// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeResourceTopology are the zones of the node of the same name.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes/enhancements/pull/1870"
// +kubebuilder:resource:path=noderesourcetopologies,scope=Cluster,shortName=node-res-topo
// +kubebuilder:printcolumn:name="Policy",type="string",JSONPath=".topologyPolicies[0]"
// +kubebuilder:printcolumn:name="Zone-CPU",type="string",JSONPath=".zones[0].resources[?(@.name=='cpu')].allocatable",description="CPU that pods may have of the first zone"
// +kubebuilder:printcolumn:name="Zone-Memory",type="string",JSONPath=".zones[0].resources[?(@.name=='memory')].allocatable",description="Memory that pods may have of the first zone"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type NodeResourceTopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// TopologyPolicies are words for the policy of the kubelet's topology manager.
	// +optional
	TopologyPolicies []string `json:"topologyPolicies,omitempty"`
	// Zones of the node.
	Zones []Zone `json:"zones"`
	// Attributes of the node, which v1alpha2 has. They are those of who writes that version, such as NFD's topology updater, and are here
	// because a write as this version would otherwise take them away: the API server converts by the apiVersion alone, and drops what the
	// version's schema does not know.
	// +optional
	Attributes []AttributeInfo `json:"attributes,omitempty"`
}

// NodeResourceTopologyList is a list of NodeResourceTopology.
//
// +kubebuilder:object:root=true
type NodeResourceTopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeResourceTopology `json:"items"`
}

// Zone is one part of a node, such as a memory node.
type Zone struct {
	// Name of the zone: node-0, node-1.
	Name string `json:"name"`
	// Type of the zone: Node.
	Type string `json:"type"`
	// Parent is the zone that it is part of.
	// +optional
	Parent string `json:"parent,omitempty"`
	// Costs are distances to zones.
	// +optional
	Costs []CostInfo `json:"costs,omitempty"`
	// Attributes of the zone.
	// +optional
	Attributes []AttributeInfo `json:"attributes,omitempty"`
	// Resources of the zone.
	// +optional
	Resources []ResourceInfo `json:"resources,omitempty"`
}

// CostInfo is the distance to one zone.
type CostInfo struct {
	// Name of the zone.
	Name string `json:"name"`
	// Value is the distance.
	Value int64 `json:"value"`
}

// AttributeInfo is one attribute.
type AttributeInfo struct {
	// Name of the attribute.
	Name string `json:"name"`
	// Value of the attribute.
	Value string `json:"value"`
}

// ResourceInfo is one resource of a zone.
type ResourceInfo struct {
	// Name of the resource.
	Name string `json:"name"`
	// Capacity is what there is.
	Capacity resource.Quantity `json:"capacity"`
	// Allocatable is what pods may have.
	Allocatable resource.Quantity `json:"allocatable"`
	// Available is what they may still have.
	Available resource.Quantity `json:"available"`
}
