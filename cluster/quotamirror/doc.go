// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package quotamirror gives every ElasticQuota of koordinator.sh and quota.koordinator.sh its object of scheduling.sigs.k8s.io, the mirror, and
// what is said of the mirror back to it (D1).
//
// What to write is decided purely in decide.go; here are the watches and the writes. Inputs are quotas of all three groups from the cache;
// outputs are mirrors, by server-side apply with force, for a mirror is its source's, and the status of sources. An object that somebody else
// has made under the name is never written: it counts, and the source says Conflict. A mirror goes with its source, by its owner reference.
// It must not import a webhook or another controller.
package quotamirror
