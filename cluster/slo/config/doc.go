// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package config reads the cluster's strategy, the ConfigMap slo-controller-config, and answers what it means for one node.
//
// Input is the ConfigMap's data: [Parse] decodes its keys strictly and tells key, line and reason of what is wrong; a key with a
// problem keeps what it said before. Output is an immutable [Config], which merges default, cluster, the first matching node
// entry, and the node's own annotations and labels, in this order. [Store] holds the one in force and wakes who follows it. The
// parser serves the controllers and the admission of the ConfigMap alike, so that they cannot disagree.
//
// It must not import client-go, controller-runtime or anything that speaks to a server.
package config
