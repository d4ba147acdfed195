// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package report tells the cluster what was measured and what is in force: the status of NodeMetric and of NodeSLO.
//
// Inputs are the window, the snapshot of pods and the collect policy; [Build] makes the status as a pure function, in
// upstream's fields and in those of the seed documents. A Metrics writes it once per report interval, and between two
// reports when the node has changed by more than a threshold; a quiet node costs one write per interval. Both objects are
// made by the manager: one that is not there is waited for, never created.
//
// The node's NodeResourceTopology is made and kept in step with the machine, the kubelet's options and the share pools by a
// TopologyWriter. A [Herald] says as events of pods what interference detection found.
//
// It may import api/{protocol,slo,strategy}, model, policy/interference and koordlet/internal/{amount,kube,kubeletopt,pods}.
package report
