// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package evict carries out what policy/evict decided: it asks the API server to evict, takes a budget's no for an answer
// unless the node is in danger, watches each victim until no process of it is left, and tells what its end has released.
//
// Inputs are decisions and the snapshot of pods; outputs are calls to the API server (or to the runtime, where neither API
// server nor kubelet help a node in danger), events, results for metrics and audit, and who is leaving or is not to be asked
// for now, which the next decision takes into account.
//
//	waiting ──accepted──► leaving ──no process left──► gone
//	   │                     └─past its grace period──► overdue; in danger: its containers are stopped
//	   ├─no longer needed, or not measured or decided for too long: dropped before its turn came
//	   ├─budget: refused for a while; in danger: deleted past the budget
//	   ├─no answer: not asked for again for a while, the next candidate is; in danger: deleted
//	   ├─missing: the API server has no such pod, and the node has it until the kubelet has heard
//	   ├─no API server: decided again in a later round; in danger, where that is wanted: its containers are stopped
//	   └─failed: not asked for again during a growing pause, the next candidate is
//
// Containers are stopped on the node only as far as Options.Stops says, only while memory is in danger, and never those of
// static pods, daemon sets or pods above Koordinator's priorities.
//
// Nothing is kept on disk: after a restart, pods that have a deletion timestamp are leaving, whoever evicted them. It may
// import model, policy/{evict,figure} and koordlet/internal/{kube,pods}.
package evict
