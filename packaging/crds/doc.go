// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package crds holds the custom resource definitions that the manager, the node agent and the scheduler need, as files.
//
// `make generate` makes them from the types below api/ with controller-gen and hack/crdbounds; nobody edits them. `kubectl apply -f packaging/crds`
// installs them. Its tests are the contract: what is released (released/*.yaml) keeps working, upstream's fields are there with
// upstream's types, the schema's bounds are those of api/strategy, and what the node writes is not pruned.
//
// At a release, copy *.yaml into released/ in the commit that is tagged. CONTRIBUTING.md says how a kind gets a second version.
//
// Inputs: none. Outputs: the files. It must not import anything of this module.
package crds

import "embed"

// Files are the definitions, one a file.
//
//go:embed *.yaml
var Files embed.FS
