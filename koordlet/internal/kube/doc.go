// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package kube is the way to the API server: single objects and small collections are listed and watched, a status is
// replaced, a pod is evicted, an event is told.
//
// Inputs are a kubeconfig or a service account and the names of objects; outputs are raw JSON for whoever decodes it, a
// slim Node, and typed answers. It speaks HTTP with net/http: an idle client-go client costs 20 MiB and brings os/exec in,
// and an agent with a budget of 40 MiB follows three objects and the pods of one node. Nothing here ends because the API
// server is away: what was known stays known, and the state says since when and why.
//
// It may import koordlet/internal/{amount,jsonscan,trust}, api/protocol and api/strategy; never client-go or apimachinery.
package kube
