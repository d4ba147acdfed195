// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package v1alpha1 is ElasticQuotaProfile, and ElasticQuota as the seed documents write it (quota.koordinator.sh/v1alpha1).
//
// Inputs are objects, outputs for quotas those of the canonical group ([ElasticQuota.Canonical]). The markers make the schema in
// packaging/crds. It may import api/schedulingsigs/v1alpha1 and apimachinery.
//
// +kubebuilder:object:generate=true
// +groupName=quota.koordinator.sh
package v1alpha1
