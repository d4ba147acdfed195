// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package config is the configuration files of the node programs: [NRI] for koord-nri, [Proxy] for koord-runtime-proxy,
// [Koordlet] for koordlet.
//
// Input is the bytes of a YAML stream; output is an [NRI], a [Proxy] or a [Koordlet] with every default filled in and, when the
// stream holds one, the node strategy. Reading the file, watching it and parsing the command line are the caller's; the names of
// the flags and the settings that they override are here, the proxy's ([Proxy.Flags]) and koordlet's ([KoordletFlags]).
//
// It may import api/strategy and api/protocol and nothing else of this module.
package config
