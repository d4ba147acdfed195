// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package v1alpha1 is ElasticQuota of the group koordinator.sh, a spelling of the seed documents.
//
// Inputs are objects, outputs those of the canonical group ([ElasticQuota.Canonical]). The markers make the schema in
// packaging/crds. It may import api/schedulingsigs/v1alpha1 and apimachinery.
//
// +kubebuilder:object:generate=true
// +groupName=koordinator.sh
package v1alpha1
