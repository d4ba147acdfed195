// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package metrics

import (
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// AgentNames are the values that the labels of the node agent's counters may have; what is not named counts as "other".
type AgentNames struct {
	// Node is the name of the Node object.
	Node string
	// Loops, Features (reasons to evict) and Objects (kinds that are written to the API server).
	Loops, Features, Objects []string
}

// Eviction is the outcome of one, a label value.
type Eviction uint8

// The outcomes.
const (
	EvictionDone Eviction = iota
	// EvictionRefused: a disruption budget did not allow it.
	EvictionRefused
	EvictionFailed
	// EvictionObserved: decided, and nobody was evicted, because the agent only observes.
	EvictionObserved
	NumEvictions
)

var evictionNames = [NumEvictions]string{"evicted", "refused", "failed", "observed"}

// String is the label value.
func (e Eviction) String() string { return name(evictionNames[:], int(e)) }

// Agent are the metrics of the node agent that grow: they are counted where something happens. What has a value at each
// moment is read at each scrape instead. All methods are safe for concurrent use and do not allocate once a series exists.
type Agent struct {
	names                              AgentNames
	loops                              []prometheus.Observer
	loopErrors, evicted, outcomes, api table
	reaction                           prometheus.Observer
	samples, readErrors                prometheus.Counter
	kubelet, updates                   *prometheus.HistogramVec
	collects                           [NumCollects]table
}

// NewAgent registers the counters. It fails when one is registered already.
func NewAgent(reg prometheus.Registerer, names AgentNames) (*Agent, error) {
	for _, list := range []*[]string{&names.Loops, &names.Features, &names.Objects} {
		*list = append(slices.Clone(*list), otherKey)
	}
	r := &registrar{reg: reg, names: agentCatalogue[:]}
	m := &Agent{
		names: names, samples: r.counter(metric(AgentSamples)), readErrors: r.counter(metric(AgentReadErrors)),
	}
	durations := r.histograms(AgentLoopDuration, loopBuckets())
	for _, l := range names.Loops {
		m.loops = append(m.loops, durations.WithLabelValues(l))
	}
	m.reaction = r.histograms(AgentReaction, reactionBuckets()).WithLabelValues()
	m.loopErrors = newTable(r.counters(metric(AgentLoopErrors)), len(names.Loops), func(i int) []string { return []string{names.Loops[i]} })
	m.evicted = newTable(r.counters(metric(AgentPodEviction)), len(names.Features), func(i int) []string {
		return []string{names.Node, names.Features[i]}
	})
	m.outcomes = newTable(r.counters(metric(AgentEvictions)), len(names.Features)*int(NumEvictions), func(i int) []string {
		return []string{names.Features[i/int(NumEvictions)], Eviction(i % int(NumEvictions)).String()}
	})
	m.api = newTable(r.counters(metric(AgentAPIWrites)), len(names.Objects)*2, func(i int) []string {
		return []string{names.Objects[i/2], [...]Result{ResultOK, ResultError}[i%2].String()}
	})
	m.upstream(r)
	return m, errors.Join(r.errs...)
}

func (r *registrar) histograms(m AgentMetric, buckets []float64) *prometheus.HistogramVec {
	d := r.names[m]
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: buckets}, d.Labels)
	r.add(metric(m), v)
	return v
}

// loopBuckets are for rounds that should take a few milliseconds of each second.
func loopBuckets() []float64 {
	return []float64{10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 1, 5}
}

// reactionBuckets have the goal of 200 ms as a bound.
func reactionBuckets() []float64 {
	return []float64{1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 150e-3, 200e-3, 300e-3, 500e-3, 1, 2, 5}
}

// index is where a name stands, the last one, "other", when it is not there.
func index(names []string, name string) int {
	if i := slices.Index(names, name); i >= 0 {
		return i
	}
	return len(names) - 1
}

// Loop records one round of a loop.
func (m *Agent) Loop(name string, took time.Duration, failed bool) {
	i := index(m.names.Loops, name)
	m.loops[i].Observe(took.Seconds())
	if failed {
		m.loopErrors.inc(i)
	}
}

// Reaction records the time from a pressure trigger to the end of the writes that answer it.
func (m *Agent) Reaction(took time.Duration) { m.reaction.Observe(took.Seconds()) }

// Evict counts one eviction.
func (m *Agent) Evict(feature string, outcome Eviction) {
	if outcome >= NumEvictions {
		return
	}
	i := index(m.names.Features, feature)
	m.outcomes.inc(i*int(NumEvictions) + int(outcome))
	if outcome == EvictionDone {
		m.evicted.inc(i)
	}
}

// APIWrite counts one write to the API server.
func (m *Agent) APIWrite(object string, failed bool) {
	i := 2 * index(m.names.Objects, object)
	if failed {
		i++
	}
	m.api.inc(i)
}

// Scan counts the samples of one scan and the files that it could not read.
func (m *Agent) Scan(samples, failed int) {
	m.samples.Add(float64(max(samples, 0)))
	m.readErrors.Add(float64(max(failed, 0)))
}
