// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// metrics tells what is lent out of each node, and the resource model's lines, as they were last decided. It holds what the
// series need and makes them when they are asked for.
type metrics struct {
	lent, line, problems, weight, unsound, held *prometheus.Desc
	writes                                      *prometheus.CounterVec

	mu    sync.Mutex
	nodes map[string]told
}

// told is what is said of a node.
type told struct {
	lines    *capacity.Lines
	weighed  bool // it is calculated what is lent
	lent     map[string]int64
	problems int
	weight   capacity.Weighing
	held     unit.Bytes
}

func newMetrics() *metrics {
	return &metrics{
		lent: prometheus.NewDesc("slo_controller_node_extended_resource_allocatable_internal",
			"What may be lent out of the node, as last calculated, in CPUs and bytes.", []string{"node", "resource", "unit"}, nil),
		line: prometheus.NewDesc("koord_rt_manager_node_line",
			"The resource model of the node: limit, usage, short-term and long-term reservation of production pods, in CPUs and bytes. There is no usage without a report that counts.",
			[]string{"node", "line", "resource"}, nil),
		problems: prometheus.NewDesc("koord_rt_manager_node_problems",
			"What could not be read or calculated of the node's resources; the log says what.", []string{"node"}, nil),
		weight: prometheus.NewDesc("koord_rt_manager_node_lending_weight",
			"The part of the usual that is lent out of a node, in percent: 100 of a sound one. None where nothing is lent.", []string{"node"}, nil),
		unsound: prometheus.NewDesc("koord_rt_manager_node_unsound",
			"1 for each reason why less than the usual is lent out of a node, or was while it recovers.", []string{"node", "reason"}, nil),
		held: prometheus.NewDesc("koord_rt_manager_node_batch_memory_held",
			"Memory in bytes that is not lent out of a node because its best-effort pods use too much of what they have requested (memoryRequestUtilizationPercent). None where all is lent.",
			[]string{"node"}, nil),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slo_controller_node_resource_reconcile_count", Help: "Writes of nodes and of their zones, by outcome.",
		}, []string{"status", "reason"}),
		nodes: map[string]told{},
	}
}

func (m *metrics) observe(node string, out *Output) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[node] = told{lines: out.Lines, weighed: out.Lines != nil && out.Without == "", lent: out.Lent, problems: len(out.Problems), weight: out.Weight, held: out.Held}
}

func (m *metrics) forget(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.nodes, node)
}

func (m *metrics) wrote(err error) {
	if err != nil {
		m.writes.WithLabelValues("failed", "write").Inc()
		return
	}
	m.writes.WithLabelValues("succeeded", "write").Inc()
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.lent
	to <- m.line
	to <- m.problems
	to <- m.weight
	to <- m.unsound
	to <- m.held
	m.writes.Describe(to)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	m.writes.Collect(to)
	m.mu.Lock()
	defer m.mu.Unlock()
	for node, t := range m.nodes {
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{node}, labels...)...)
		}
		gauge(m.problems, float64(t.problems))
		for name, v := range t.lent {
			if strings.HasSuffix(name, "cpu") {
				gauge(m.lent, float64(v)/1000, name, "integer")
			} else {
				gauge(m.lent, float64(v), name, "byte")
			}
		}
		for _, reason := range t.weight.Reasons {
			gauge(m.unsound, 1, reason)
		}
		if t.held > 0 {
			gauge(m.held, float64(t.held))
		}
		if t.lines == nil {
			continue
		}
		if t.weighed {
			gauge(m.weight, float64(t.weight.Weight))
		}
		lines := map[string]capacity.Amounts{
			"limit": t.lines.Limit, "short-term-reservation": t.lines.ShortTerm, "long-term-reservation": t.lines.LongTerm,
		}
		if t.lines.UsageOK {
			lines["usage"] = t.lines.Usage
		}
		for name, a := range lines {
			gauge(m.line, float64(a.CPU)/1000, name, "cpu")
			gauge(m.line, float64(a.Memory), name, "memory")
		}
	}
}
