// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package talk

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Options of New. Everything without a default is required. The functions are called whenever somebody asks, from any
// goroutine.
type Options struct {
	Window Window
	// Pods is who is here; *pods.Keeper is one. Nil: nobody knows.
	Pods interface {
		Snapshot() *pods.Snapshot
		State() *pods.State
	}
	// Facts is the newest value; it never returns nil.
	Facts func() *Facts
	// Now is the loops' clock, Wall the wall clock; time.Now by default.
	Now  func() unit.Micros
	Wall func() time.Time
	// Interval, SlowInterval and CPIInterval are how often samples come; 1 s, 10 s and 60 s by default. Three intervals
	// without a sample, and there is no present value.
	Interval, SlowInterval, CPIInterval unit.Micros
}

// stale is how many intervals a sample may be old.
const stale = 3

// Talk tells of the agent. It is a prometheus.Collector; register it once. Everything is safe for concurrent use.
type Talk struct {
	o     Options
	kinds [metrics.NumAgentMetrics]kind
}

// kind is what all points of a metric have in common.
type kind struct {
	desc    *prometheus.Desc
	counter bool
	// names are the labels' names in the order that Prometheus wants; from says which value belongs to each.
	names []*string
	from  []int
}

var _ prometheus.Collector = (*Talk)(nil)

// New makes a Talk.
func New(o Options) *Talk {
	for _, d := range []struct {
		to    *unit.Micros
		value unit.Micros
	}{{&o.Interval, unit.Second}, {&o.SlowInterval, 10 * unit.Second}, {&o.CPIInterval, unit.Minute}} {
		if *d.to <= 0 {
			*d.to = d.value
		}
	}
	if o.Wall == nil {
		o.Wall = time.Now
	}
	t := &Talk{o: o}
	for i, m := range metrics.AgentCatalogue() {
		t.kinds[i] = newKind(m)
	}
	return t
}

func newKind(m metrics.Metric) kind {
	k := kind{desc: prometheus.NewDesc(m.Name, m.Help, m.Labels, nil), counter: m.Kind == metrics.Counter}
	for i := range m.Labels {
		k.from = append(k.from, i)
	}
	slices.SortFunc(k.from, func(a, b int) int { return strings.Compare(m.Labels[a], m.Labels[b]) })
	for _, i := range k.from {
		k.names = append(k.names, &m.Labels[i])
	}
	return k
}

// Input reads everything as it is now.
func (t *Talk) Input() *Input {
	in := &Input{
		Window: t.o.Window, Facts: t.o.Facts(), Now: t.o.Now(), Wall: t.o.Wall(),
		Fast: stale * t.o.Interval, Slow: stale * t.o.SlowInterval, CPI: stale * t.o.CPIInterval,
	}
	if t.o.Pods != nil {
		in.Pods, in.PodsState = t.o.Pods.Snapshot(), t.o.Pods.State()
	}
	if w, ok := t.o.Window.(interface{ Stats() window.Stats }); ok {
		s := w.Stats()
		in.Stats = &s
	}
	return in
}

// Status is the agent's section of its status file.
func (t *Talk) Status() *status.Agent { return Section(t.Input()) }

// Describe implements prometheus.Collector. The metrics of metrics.Agent are not among them.
func (t *Talk) Describe(ch chan<- *prometheus.Desc) {
	for i := range t.kinds {
		if !counted(metrics.AgentMetric(i)) { //nolint:gosec // below NumAgentMetrics
			ch <- t.kinds[i].desc
		}
	}
}

// Collect implements prometheus.Collector.
func (t *Talk) Collect(ch chan<- prometheus.Metric) {
	Points(t.Input(), func(m metrics.AgentMetric, value float64, labels ...string) {
		ch <- t.kinds[m].point(value, labels)
	})
}

// counted reports whether metrics.Agent registers the metric.
func counted(m metrics.AgentMetric) bool {
	switch m {
	case metrics.AgentPodEviction, metrics.AgentEvictions, metrics.AgentLoopDuration, metrics.AgentLoopErrors, metrics.AgentReaction,
		metrics.AgentAPIWrites, metrics.AgentSamples, metrics.AgentReadErrors, metrics.AgentKubeletRequest, metrics.AgentResourceUpdate,
		metrics.AgentCollectCPU, metrics.AgentCollectNUMA, metrics.AgentCollectStorage:
		return true
	}
	return false
}

// point is one value of one series. The client's constant metrics copy and sort names and values for each point, which a
// scrape of thousands of containers' series need not pay.
type point struct {
	kind  *kind
	value float64
	pairs []*dto.LabelPair
}

func (k *kind) point(value float64, labels []string) *point {
	p := &point{kind: k, value: value}
	if n := len(k.from); n > 0 {
		values := make([]dto.LabelPair, n)
		p.pairs = make([]*dto.LabelPair, n)
		for i, from := range k.from {
			values[i].Name, values[i].Value = k.names[i], &labels[from]
			p.pairs[i] = &values[i]
		}
	}
	return p
}

// Desc implements prometheus.Metric.
func (p *point) Desc() *prometheus.Desc { return p.kind.desc }

// Write implements prometheus.Metric.
func (p *point) Write(m *dto.Metric) error {
	m.Label = p.pairs
	if p.kind.counter {
		m.Counter = &dto.Counter{Value: &p.value}
	} else {
		m.Gauge = &dto.Gauge{Value: &p.value}
	}
	return nil
}
