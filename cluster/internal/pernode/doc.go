// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package pernode keeps one object of a kind for every node, named after it, with a spec that the cluster's strategy gives.
//
// Inputs are nodes, the stored objects and the configuration in force; outputs are server-side applies without force, so that a
// field that somebody else wrote is an override for that node, and the deletion of what a node left behind. [Plan] decides, as a
// pure function; the reconciler around it reads the cache, asks the API server for the node before it deletes, and writes. Who needs such a
// kind describes it by a [Kind].
package pernode
