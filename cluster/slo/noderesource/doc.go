// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package noderesource writes what may be lent out of each node: batch-* and mid-* in the node's status, what healthy devices
// give, the annotations that go with them, and batch-* of each memory node in its NodeResourceTopology.
//
// [Decide] is the whole decision, a pure function of the objects, the strategy and the time, around policy/capacity. The reconciler
// reads the objects from the manager's cache, calls it, and writes by one merge patch of nodes/status that names nothing but what is ours
// (metadata of a node can be written there too), so that a kubelet that reports at the same time is never in conflict.
// It writes when a difference is worth it (capacity.Rule), which on a quiet cluster is hardly ever.
//
// Inputs are Nodes, NodeMetrics, NodeSLOs, Pods, Devices, NodeResourceTopologies and the config.Store; outputs patches and metrics. It
// must not import a webhook or another controller.
package noderesource
