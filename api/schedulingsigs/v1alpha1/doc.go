// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package v1alpha1 is ElasticQuota and PodGroup (scheduling.sigs.k8s.io/v1alpha1), the canonical group of quotas.
//
// Inputs and outputs are API objects. ElasticQuota of the groups koordinator.sh and quota.koordinator.sh have the same
// content (api/koordinator, api/quota) and become objects of this group. The markers make the schema in packaging/crds. It may
// import apimachinery and the standard library.
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.sigs.k8s.io
package v1alpha1
