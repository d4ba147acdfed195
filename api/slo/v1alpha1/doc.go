// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package v1alpha1 is NodeSLO and NodeMetric (slo.koordinator.sh/v1alpha1) with apimachinery, for programs of the cluster.
//
// Inputs are objects in either spelling, Koordinator's and that of the seed documents; outputs are the canonical values
// ([NodeSLOSpec.Canonical], [NodeMetricSpec.Canonical], [NodeMetricStatus.Canonical]). The markers make the schema in
// packaging/crds: bounds there are those of strategy.Validate, which the CRD tests compare. It may import api/slo,
// api/strategy, api/scheduling/v1alpha1 and apimachinery; programs of the node use api/slo instead.
//
// +kubebuilder:object:generate=true
// +groupName=slo.koordinator.sh
package v1alpha1
