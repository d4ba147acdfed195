// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package talk is what the node agent tells: Prometheus metrics, the audit at /events, and its section of the status file.
//
// Inputs are read when somebody asks, and kept by nobody here: the window of samples, the snapshot of pods, the Facts that
// only the loops know, and the ends of the ledgers. Outputs are metrics (a prometheus.Collector), a status.Agent, HTTP
// routes for daemon/metrics.Serve, and a ledger of events that are no writes (Audit). Points and Agent are pure; time is an
// argument. How many series there are is bounded by what runs on the node and by the limits below.
//
// It may import model, api/protocol, policy/burst, interference, memqos, oomscore, predict and suppress, daemon/metrics, status
// and ledger, koordlet/internal/amount, pods and window, and the Prometheus client; it must not import kernel, client-go or
// koordlet/internal/kube.
package talk
