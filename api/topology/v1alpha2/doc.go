// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package v1alpha2 is NodeResourceTopology (topology.node.k8s.io/v1alpha2) of the topology-aware scheduling working group: the memory
// nodes of a node and what each offers. The group is not ours; its schema is shipped because koordlet and the manager write
// these objects.
//
// Inputs and outputs are API objects. The markers make the schema in packaging/crds. It may import apimachinery and the standard
// library.
//
// +kubebuilder:object:generate=true
// +groupName=topology.node.k8s.io
package v1alpha2
