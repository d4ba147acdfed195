// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package hooks calls the external hook servers that are registered in upstream's hook directory and turns their answers
// into plans beside ours.
//
// Inputs are the directory's JSON files and the pods and containers of CRI calls; outputs are one [Answer] per hook
// server, a [Refusal] where a server with policy Fail failed, and the [Merge] of their plans with ours. It neither
// forwards nor changes requests. It may import adapt, model and api; not gRPC, and no log of values of variables.
package hooks
