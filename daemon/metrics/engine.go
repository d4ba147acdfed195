// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package metrics

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/drift"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// maxFeatures is more than there are features; higher values count as "unknown".
const maxFeatures = 32

// Engine are the metrics of a program with an engine. All methods are safe for concurrent use; those of the hot path do not allocate once
// a series exists.
type Engine struct {
	duration  [NumEvents]prometheus.Observer
	late      table
	decisions table
	observed  table
	proofs    table
	writes    table
	early     table
	drifts    table
	failOpen  table
	problems  map[string]*table
	// afterStart is nil in a program that hears of a start before it.
	afterStart prometheus.Histogram

	ledgerErrors, connects                       prometheus.Counter
	unmanaged, containers, connected, generation prometheus.Gauge
	claims, features, build                      *prometheus.GaugeVec
	isConnected                                  atomic.Bool
}

// table holds the series of a vector by the index of their label values; series appear with their first use.
type table struct {
	vec    *prometheus.CounterVec
	labels func(i int) []string
	cells  []atomic.Pointer[prometheus.Counter]
}

func newTable(vec *prometheus.CounterVec, n int, labels func(int) []string) table {
	return table{vec: vec, labels: labels, cells: make([]atomic.Pointer[prometheus.Counter], n)}
}

func (t *table) inc(i int) {
	if i < 0 || i >= len(t.cells) {
		return
	}
	c := t.cells[i].Load()
	if c == nil {
		made := t.vec.WithLabelValues(t.labels(i)...)
		c = &made
		t.cells[i].Store(c)
	}
	(*c).Inc()
}

// registrar collects the errors of registration.
type registrar struct {
	reg   prometheus.Registerer
	names []Metric
	errs  []error
}

func (r *registrar) add(m metric, c prometheus.Collector) {
	if err := r.reg.Register(c); err != nil {
		r.errs = append(r.errs, fmt.Errorf("register %s: %w", r.names[m].Name, err))
	}
}

func (r *registrar) counters(m metric) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: r.names[m].Name, Help: r.names[m].Help}, r.names[m].Labels)
	r.add(m, v)
	return v
}

func (r *registrar) gauges(m metric) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: r.names[m].Name, Help: r.names[m].Help}, r.names[m].Labels)
	r.add(m, v)
	return v
}

func (r *registrar) counter(m metric) prometheus.Counter { return r.counters(m).WithLabelValues() }

func (r *registrar) gauge(m metric) prometheus.Gauge { return r.gauges(m).WithLabelValues() }

// NewEngine registers the metrics, named after the program: "nri", "cri", "koordlet". It fails when one is registered already.
func NewEngine(reg prometheus.Registerer, program string) (*Engine, error) {
	r := &registrar{reg: reg, names: Catalogue(program)}
	m := &Engine{
		ledgerErrors: r.counter(ledgerErrors), connects: r.counter(connects),
		unmanaged: r.gauge(unmanaged), containers: r.gauge(containers), connected: r.gauge(connected),
		generation: r.gauge(generation),
		claims:     r.gauges(claimedCPUs), features: r.gauges(featureState), build: r.gauges(buildInfo),
	}
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: r.names[eventDuration].Name, Help: r.names[eventDuration].Help, Buckets: Buckets(),
	}, r.names[eventDuration].Labels)
	r.add(eventDuration, durations)
	for e := range NumEvents {
		m.duration[e] = durations.WithLabelValues(e.String())
	}
	if len(r.names) > int(afterStart) {
		m.afterStart = prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: r.names[afterStart].Name, Help: r.names[afterStart].Help, Buckets: Buckets(),
		})
		r.add(afterStart, m.afterStart)
	}
	feature := func(i int) string { return protocol.Feature(i).String() }
	m.late = newTable(r.counters(eventLate), int(NumEvents), func(i int) []string { return []string{Event(i).String()} })
	m.failOpen = newTable(r.counters(failOpen), int(NumFailOpens), func(i int) []string { return []string{FailOpen(i).String()} })
	m.observed = newTable(r.counters(observed), maxFeatures, func(i int) []string { return []string{feature(i)} })
	m.decisions = newTable(r.counters(decisions), maxFeatures*int(NumOutcomes), func(i int) []string {
		return []string{feature(i / int(NumOutcomes)), Outcome(i % int(NumOutcomes)).String()}
	})
	m.proofs = newTable(r.counters(proofs), int(plan.NumKnobs)*int(NumResults), knobResult)
	m.writes = newTable(r.counters(writes), int(plan.NumKnobs)*int(NumResults), knobResult)
	m.early = newTable(r.counters(early), int(plan.NumKnobs), func(i int) []string { return []string{plan.Knob(i).String()} }) //nolint:gosec // below NumKnobs
	m.drifts = newTable(r.counters(drifts), int(plan.NumKnobs)*drift.NumSources, func(i int) []string {
		return []string{plan.Knob(i / drift.NumSources).String(), drift.Source(i % drift.NumSources).String()} //nolint:gosec // below NumSources
	})
	m.problems = problemTables(r.counters(problems))
	return m, errors.Join(r.errs...)
}

// otherKey counts problems with keys that are not in the table.
const otherKey = "other"

// problemKeys are the keys that a problem may name; pods can invent others.
func problemKeys() []string {
	return []string{
		protocol.LabelQoSClass, protocol.LabelPriority, protocol.LabelPriorityClass, protocol.LabelCoreSchedGroupID,
		protocol.LabelCoreSchedPolicy, protocol.LabelGPUIsolationProvider, protocol.AnnotationResourceStatus,
		protocol.AnnotationDeviceAllocated, protocol.AnnotationCPUBurst, protocol.AnnotationCPUQOS,
		protocol.AnnotationMemoryQOS, protocol.AnnotationBlkIOQOS, protocol.AnnotationNetworkQOS,
		protocol.AnnotationOOMScoreAdj, protocol.AnnotationOOMScoreAdjSpec, protocol.AnnotationResctrl,
		protocol.AnnotationExtendedResource, protocol.KeyOptOut, protocol.AnnotationRequired,
		protocol.AnnotationApplied, "strategy", "configuration", "handoff", "probe", "panic", otherKey,
	}
}

func problemTables(vec *prometheus.CounterVec) map[string]*table {
	out := map[string]*table{}
	for _, k := range problemKeys() {
		t := newTable(vec, 1, func(int) []string { return []string{k} })
		out[k] = &t
	}
	return out
}

// ObserveEvent records one handler's duration.
func (m *Engine) ObserveEvent(e Event, d time.Duration) {
	if e < NumEvents {
		m.duration[e].Observe(d.Seconds())
	}
}

// AfterStart records how long after the runtime's answer to a start that was in force which the request could not carry.
func (m *Engine) AfterStart(d time.Duration) {
	if m.afterStart != nil {
		m.afterStart.Observe(d.Seconds())
	}
}

// Late counts a decision that missed its deadline.
func (m *Engine) Late(e Event) { m.late.inc(int(e)) }

// Decision counts one decision of a feature.
func (m *Engine) Decision(f protocol.Feature, o Outcome) {
	if o < NumOutcomes {
		m.decisions.inc(int(f)*int(NumOutcomes) + int(o))
	}
}

// Early counts a write that was made before the container's start was told.
func (m *Engine) Early(k plan.Knob) { m.early.inc(int(k)) }

// Observed counts a setting that was planned but, in observe mode, not written.
func (m *Engine) Observed(f protocol.Feature) { m.observed.inc(int(f)) }

// Problem counts input that could not be used; keys that are not ours to read count as "other".
func (m *Engine) Problem(key string) {
	t := m.problems[key]
	if t == nil {
		t = m.problems[otherKey]
	}
	t.inc(0)
}

// Proof counts one value read back at start.
func (m *Engine) Proof(k plan.Knob, r Result) { m.proofs.inc(knobCell(k, r)) }

// Write counts one write of ours.
func (m *Engine) Write(k plan.Knob, r Result) { m.writes.inc(knobCell(k, r)) }

// Drift counts one value that was found to be another than stood there.
func (m *Engine) Drift(k plan.Knob, by drift.Source) {
	if k < plan.NumKnobs && int(by) < drift.NumSources {
		m.drifts.inc(int(k)*drift.NumSources + int(by))
	}
}

// knobResult are the label values of a cell.
func knobResult(i int) []string {
	return []string{plan.Knob(i / int(NumResults)).String(), Result(i % int(NumResults)).String()}
}

func knobCell(k plan.Knob, r Result) int {
	if r >= NumResults {
		return -1
	}
	return int(k)*int(NumResults) + int(r)
}

// FailOpen counts a container let through without its guarantees.
func (m *Engine) FailOpen(r FailOpen) { m.failOpen.inc(int(r)) }

// LedgerError counts records that could not be kept.
func (m *Engine) LedgerError(records int) { m.ledgerErrors.Add(float64(max(records, 0))) }

// SetUnmanaged sets the number of containers found without our annotation at Synchronize.
func (m *Engine) SetUnmanaged(n int) { m.unmanaged.Set(float64(n)) }

// SetContainers sets the number of containers known.
func (m *Engine) SetContainers(n int) { m.containers.Set(float64(n)) }

// SetConnected tells whether the runtime is connected; each change to true counts as a connect.
func (m *Engine) SetConnected(ok bool) {
	was := m.isConnected.Swap(ok)
	if !ok {
		m.connected.Set(0)
		return
	}
	m.connected.Set(1)
	if !was {
		m.connects.Inc()
	}
}

// SetGeneration sets the view's generation.
func (m *Engine) SetGeneration(gen uint64) { m.generation.Set(float64(gen)) }

// SetClaims sets the number of CPUs held by exclusive containers.
func (m *Engine) SetClaims(lse, lsr int) {
	m.claims.WithLabelValues(protocol.QoSLSE.String()).Set(float64(lse))
	m.claims.WithLabelValues(protocol.QoSLSR.String()).Set(float64(lsr))
}

// SetFeatures sets the state of the features: 1 for the state it is in, 0 for the others. Names and states that are not
// ours are left out.
func (m *Engine) SetFeatures(states []node.FeatureState) {
	for _, s := range states {
		if _, ok := protocol.ParseFeature(s.Feature); !ok {
			continue
		}
		for _, state := range stateNames {
			v := 0.0
			if state == s.State {
				v = 1
			}
			m.features.WithLabelValues(s.Feature, state).Set(v)
		}
	}
}

// SetBuild sets the build information; it replaces what was set before.
func (m *Engine) SetBuild(version, runtime, runtimeVersion, nri string) {
	m.build.Reset()
	m.build.WithLabelValues(clean(version), clean(runtime), clean(runtimeVersion), clean(nri)).Set(1)
}

// clean bounds a label value that another program reported.
func clean(s string) string {
	const longest = 64
	if len(s) > longest {
		s = s[:longest]
	}
	b := []byte(s)
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '?'
		}
	}
	return string(b)
}
