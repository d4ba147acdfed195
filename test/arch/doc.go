// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package arch tests the house itself: import directions over the transitive graph, licence headers, package
// documentation, file lengths and names. It has no code of its own. Inputs: the source tree and `go list`.
package arch
