// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package config is the configuration file of koord-nri.
//
// Input is the bytes of a YAML stream; output is an [NRI] with every default filled in and, when the stream holds one,
// the node strategy. Reading the file, watching it and flags are the caller's.
//
// It may import api/strategy and api/protocol and nothing else of this module.
package config
