// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package strategy is the node strategy: the spec of a NodeSLO (slo.koordinator.sh/v1alpha1) as plain structs.
//
// Inputs are bytes of a file (YAML or JSON, a bare spec or a whole NodeSLO) or values of the CRD type; outputs are a
// Spec as written ([Parse], [Normalise]) and a Spec with every default filled in ([Effective]). Everything is a pure
// function of its arguments: no files, no clock, no package state.
//
// It must not import any other package of this module, nor apimachinery or client-go.
package strategy
