// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package evict carries out what policy/evict decided: it asks the API server to evict, takes a budget's no for an answer
// unless the node is in danger, and watches each victim until it is gone.
//
// Inputs are decisions and the snapshot of pods; outputs are calls to the API server (or to the runtime, where the API
// server cannot help a node in danger), events, results for metrics and audit, and who is leaving or was refused, which the
// next decision takes into account.
//
//	waiting ──accepted──► leaving ──no process left──► gone
//	   │                     └─past its grace period──► overdue (its containers are stopped once)
//	   ├─budget: refused for a while; in danger: deleted past the budget
//	   └─failed: decided again in a later round; in danger: its containers are stopped
//
// Nothing is kept on disk: after a restart, pods that have a deletion timestamp are leaving, whoever evicted them. It may
// import model, policy/evict and koordlet/internal/{kube,pods}.
package evict
