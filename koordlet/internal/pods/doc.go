// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package pods knows who is here: the pods of this node with what Kubernetes says of them, as slim immutable values.
//
// Inputs are the kubelet's list of pods, asked over verified TLS, or the API server's pods of the node, followed by
// whoever calls an APISink; each may be missing and come back. The output is a Snapshot behind an atomic pointer, and a
// State that says where it comes from and why it may be old. Nothing of a pod object is kept that no loop reads: a full
// one is ten kilobytes, a slim one less than one.
//
// It may import model, api/protocol, policy/evict (whose annotation it checks), koordlet/internal/amount, jsonscan and trust. It must not import client-go,
// apimachinery or koordlet/internal/kube, whose Follow it is handed as a function.
package pods
