// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package recommender

import "github.com/prometheus/client_golang/prometheus"

// metrics are those of the recommender.
type metrics struct {
	objects, containers prometheus.Gauge
	figures, writes     *prometheus.CounterVec
	passed              prometheus.Counter
}

func newMetrics() *metrics {
	return &metrics{
		objects: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "koord_rt_manager_recommendations", Help: "Recommendations that are followed.",
		}),
		containers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "koord_rt_manager_recommended_containers", Help: "Containers of which there is a history; each takes about 2 KiB.",
		}),
		figures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "koord_rt_manager_recommender_figures_total", Help: "Figures of containers, CPU and memory counted alone: learned, or not measured and passed over.",
		}, []string{"result"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "koord_rt_manager_recommender_writes_total", Help: "Writes of Recommendations, and of what nodes are to report, by outcome.",
		}, []string{"result"}),
		passed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "koord_rt_manager_recommender_reports_passed_over_total", Help: "Looks at reports that were older than ten minutes, or of the future.",
		}),
	}
}

func (m *metrics) learned(samples, skipped int) {
	m.figures.WithLabelValues("learned").Add(float64(2*samples - skipped))
	m.figures.WithLabelValues("passed-over").Add(float64(skipped))
}

func (m *metrics) held(objects, containers int) {
	m.objects.Set(float64(objects))
	m.containers.Set(float64(containers))
}

func (m *metrics) wrote(err error) {
	if err != nil {
		m.writes.WithLabelValues("failed").Inc()
		return
	}
	m.writes.WithLabelValues("succeeded").Inc()
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.objects, m.containers, m.figures, m.writes, m.passed}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(to)
	}
}
