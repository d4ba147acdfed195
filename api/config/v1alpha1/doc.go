// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package v1alpha1 is ClusterColocationProfile (config.koordinator.sh/v1alpha1): which pods are changed at admission, and how.
//
// Inputs and outputs are API objects; what a profile does to a pod is policy/profile's. The markers make the schema in
// packaging/crds. It may import apimachinery and the standard library.
//
// +kubebuilder:object:generate=true
// +groupName=config.koordinator.sh
package v1alpha1
