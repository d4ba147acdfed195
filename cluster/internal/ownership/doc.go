// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package ownership decides what to apply of an object that others write too: everything wanted but what somebody else has
// written, and nothing at all when it stands there already.
//
// Inputs are what is wanted and what is stored, as JSON trees, and the object's managedFields; output is the tree to apply by
// server-side apply without force, and whether that would change anything. Fields are leaves: a list is one leaf, whatever its
// elements are. What would break one of the API server's rules beside others' fields gives way ([Yield]). Everything is a pure function.
//
// It must not import client-go or controller-runtime.
package ownership
