// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package protocol is the vocabulary between cluster and node: every label, annotation and resource name, the QoS and
// priority classes, and the parsers and writers of their values.
//
// Inputs are the labels and annotations of one pod, written by anyone who may create a pod, so every parser bounds what
// it reads and never panics. Output is one [Ask] and a list of [Problem] values: a bad key is reported and ignored, the
// others still count.
//
// It may import api/strategy (shared structs) and the standard library, nothing else.
package protocol
