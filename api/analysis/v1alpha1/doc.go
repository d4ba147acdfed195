// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package v1alpha1 is Recommendation (analysis.koordinator.sh/v1alpha1): what containers of a workload should ask for.
//
// Inputs and outputs are API objects. The markers make the schema in packaging/crds. It may import apimachinery and the standard
// library.
//
// +kubebuilder:object:generate=true
// +groupName=analysis.koordinator.sh
package v1alpha1
