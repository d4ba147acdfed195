// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package handoff carries the node agent's view to the plugin and the proxy through files (D5).
//
// strategy.json, dynamic.json and pods.json lie apart in the run directory, so that the tick rewrites only the small
// one. Each is replaced atomically and has the form
//
//	{"version": 1, "generation": 7, "writtenAt": "…", "expires": "…", "expiresUp": 3660000000000, "payload": …}
//
// where expires, and the same as nanoseconds since boot, are dynamic.json's alone. The payload of strategy.json is NodeSLO's spec; the others are described at
// wireDynamic and wirePod. A copy of strategy.json in the state directory serves the next boot until an agent is there.
//
// Input and output are strategy.Spec, node.Dynamic and node.PodSpec values. It may import model, api/strategy,
// api/protocol, daemon/atomicfile, daemon/boottime, daemon/dirwatch and the standard library.
package handoff
