// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package metrics holds the metrics of the node daemons and the endpoint that serves them.
//
// Input is calls from the hot path, which allocate nothing once a series exists; output is a registry that the caller
// injects and an HTTP endpoint on a unix socket or on loopback. Every label value comes from a table of ours, so that no
// pod can make series; the node agent's gauges, whose names stand in the catalogue here, are made at each scrape by
// koordlet/internal/talk, which bounds them. It may import model, api/protocol, daemon/atomicfile, the Prometheus
// client and the standard library.
package metrics
