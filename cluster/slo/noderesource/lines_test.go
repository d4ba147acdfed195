// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
)

// TestLines: the resource model of the example, in CPUs: production asks for 40 and uses 33, batch may have 25 of 100. Where nothing is lent
// all of the node is kept; what only a report knows is left out where none counts; and a weight is told only of what is lent.
func TestLines(t *testing.T) {
	t.Parallel()
	all := map[string]float64{"limit": 40, "usage": 33, "short-term-reservation": 75, "long-term-reservation": 40}
	unreported := map[string]float64{"limit": 40, "short-term-reservation": 100, "long-term-reservation": 40}
	for name, tc := range map[string]struct {
		change func(*testing.T, *scene)
		want   map[string]float64
		weight bool
	}{
		"lent": {func(*testing.T, *scene) {}, all, true},
		"off": {func(t *testing.T, in *scene) {
			in.Config = strategy(t, map[string]string{config.KeyColocation: `{"enable": false}`})
		}, map[string]float64{"limit": 40, "usage": 33, "short-term-reservation": 100, "long-term-reservation": 40}, false},
		"stale":              {func(_ *testing.T, in *scene) { in.Now = in.Now.Add(time.Hour) }, unreported, false},
		"ahead of the time":  {func(_ *testing.T, in *scene) { in.Now = in.Now.Add(-time.Hour) }, unreported, false},
		"has never reported": {func(_ *testing.T, in *scene) { in.Metric = nil }, unreported, false},
		"off and stale": {func(t *testing.T, in *scene) {
			in.Config, in.Now = strategy(t, map[string]string{config.KeyColocation: `{"enable": false}`}), in.Now.Add(time.Hour)
		}, unreported, false},
		// Whose account writes the annotation of its node must not end the metrics of all.
		"recovering, and a reason stands twice": {func(_ *testing.T, in *scene) {
			in.Node.Annotations[protocol.AnnotationLendingWeight] = `{"percent":50,"reasons":["evictions","evictions"],"since":"2026-11-22T12:00:00Z"}`
		}, all, true},
		"strategy never read": {func(_ *testing.T, in *scene) {
			in.Config, _ = config.Parse(map[string]string{config.KeyColocation: `{"enable": 5}`}, nil)
		}, map[string]float64{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := example(t)
			tc.change(t, in)
			out := in.decide()
			m := newMetrics()
			m.observe("n", &out)
			cpus, weight := gathered(t, m)
			if diff := cmp.Diff(tc.want, cpus); diff != "" || weight != tc.weight {
				t.Errorf("weight told %t, want %t; %s", weight, tc.weight, diff)
			}
		})
	}
}

// gathered are the CPUs of a node's lines as they are scraped, and whether there is a weight.
func gathered(t *testing.T, m *metrics) (cpus map[string]float64, weight bool) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	cpus = map[string]float64{}
	for _, f := range families {
		weight = weight || f.GetName() == "koord_rt_manager_node_lending_weight"
		if f.GetName() != "koord_rt_manager_node_line" {
			continue
		}
		for _, s := range f.GetMetric() {
			label := map[string]string{}
			for _, l := range s.GetLabel() {
				label[l.GetName()] = l.GetValue()
			}
			if label["resource"] == "cpu" {
				cpus[label["line"]] = s.GetGauge().GetValue()
			}
		}
	}
	return cpus, weight
}
