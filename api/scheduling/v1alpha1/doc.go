// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package v1alpha1 is Reservation, Device, PodMigrationJob, ClusterNetworkTopology and ScheduleExplanation
// (scheduling.koordinator.sh/v1alpha1).
//
// Inputs are objects in either spelling, Koordinator's and that of the seed documents; outputs are the canonical values
// ([DeviceSpec.Canonical]). The markers make the schema in packaging/crds. It may import api/protocol, api/strategy,
// Kubernetes' own types, apimachinery and the standard library.
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.koordinator.sh
package v1alpha1
