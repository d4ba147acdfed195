// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package slo is NodeSLO and NodeMetric (slo.koordinator.sh/v1alpha1) as plain structs: what stands in their spec and
// status in both spellings, Koordinator's and that of the seed documents, and one function per kind from either spelling to
// what it means.
//
// Inputs are objects as JSON, outputs the values that the node agent works with and the status it writes. The types carry
// no apimachinery, as those of api/strategy do not, so that the agent stays small; a kind with a scheme embeds them. It may
// import api/strategy and the standard library.
package slo
