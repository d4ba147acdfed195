// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pernode

import "github.com/prometheus/client_golang/prometheus"

// metrics are upstream's counters of a kind, by its names and labels. Its reasons are words for what was done.
type metrics struct{ reconciled, parsed *prometheus.CounterVec }

func newMetrics(kind string) metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "slo_controller", Name: kind + name, Help: help}, []string{"status", "reason"})
	}
	return metrics{
		reconciled: counter("_reconcile_count", "Objects that were written, and looks that failed; a look that finds everything as it should be is not counted."),
		parsed:     counter("_spec_parse_count", "Specs that were made of the strategy; failed where an annotation or label of the node was passed over, or a field gave way to another's."),
	}
}

// register registers both.
func (m metrics) register(r prometheus.Registerer) error {
	if err := r.Register(m.reconciled); err != nil {
		return err
	}
	return r.Register(m.parsed)
}

// What is counted.
const (
	whyRead, whyDecide, whyApply, whyRefused, whyDelete = "read", "decide", "apply", "refused", "delete"
	whyStrategy, whyNode, whyYielded                    = "strategy", "node", "yielded"
)

// did counts what became of a step.
func (m metrics) did(err error, reason string) {
	m.reconciled.WithLabelValues(status(err == nil), reason).Inc()
}

func status(ok bool) string {
	if ok {
		return "succeeded"
	}
	return "failed"
}
