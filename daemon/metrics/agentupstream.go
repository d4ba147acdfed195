// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package metrics

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Update is what was written, a label value of upstream's.
type Update uint8

// The kinds of writes.
const (
	UpdateCgroup Update = iota
	UpdateSchemata
	UpdateOther
	NumUpdates
)

var updateNames = [NumUpdates]string{"cgroup", "resctrl-schema", "default"}

// Collect is what of the node was read.
type Collect uint8

// What is read of the node.
const (
	CollectCPU Collect = iota
	CollectNUMA
	CollectStorage
	NumCollects
)

var collectMetrics = [NumCollects]AgentMetric{CollectCPU: AgentCollectCPU, CollectNUMA: AgentCollectNUMA, CollectStorage: AgentCollectStorage}

// upstream registers those that upstream counts where something happens; buckets are its own.
func (m *Agent) upstream(r *registrar) {
	m.kubelet = r.histograms(AgentKubeletRequest, prometheus.ExponentialBuckets(0.001, 4, 7))
	m.updates = r.histograms(AgentResourceUpdate, prometheus.ExponentialBuckets(0.01, 4, 8))
	for c, name := range collectMetrics {
		m.collects[c] = newTable(r.counters(metric(name)), 2, func(i int) []string {
			return []string{m.names.Node, choose(i == 1, "failed", "succeeded")}
		})
	}
}

// kubeletPaths are what the kubelet is asked for, as upstream spells it.
var kubeletPaths = map[string]string{"/pods": "/pods/", "/configz": "/configz"}

// KubeletAnswered records the time to the beginning of an answer of the kubelet.
func (m *Agent) KubeletAnswered(method, path string, code int, took time.Duration) {
	verb, status := otherKey, otherKey
	if method == "GET" {
		verb = strings.ToLower(method)
	}
	if code >= 100 && code < 600 {
		status = strconv.Itoa(code)
	}
	known := kubeletPaths[path]
	if known == "" {
		known = otherKey
	}
	m.kubelet.WithLabelValues(verb, known, status).Observe(took.Seconds())
}

// Updated records the time of one write to the kernel.
func (m *Agent) Updated(u Update, took time.Duration, failed bool) {
	if u < NumUpdates {
		m.updates.WithLabelValues(updateNames[u], choose(failed, "failed", "success")).Observe(float64(took.Nanoseconds()) / 1e6)
	}
}

// Collected counts one reading.
func (m *Agent) Collected(c Collect, failed bool) {
	if c < NumCollects {
		m.collects[c].inc(choose(failed, 1, 0))
	}
}

func choose[T any](is bool, yes, no T) T {
	if is {
		return yes
	}
	return no
}
