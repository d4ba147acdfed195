// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/host"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/koordlet/internal/agent"
	"github.com/koord-rt/koord-rt/koordlet/internal/collect"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/plan"
)

// counts are the series of a registry by name and values of labels.
func counts(t *testing.T, reg *prometheus.Registry) map[string]uint64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]uint64{}
	for _, f := range families {
		for _, s := range f.Metric {
			key := f.GetName()
			for _, l := range s.Label {
				key += " " + l.GetValue()
			}
			if n := s.GetHistogram().GetSampleCount() + uint64(s.GetCounter().GetValue()); n > 0 {
				out[key] = n
			}
		}
	}
	return out
}

// answering is a Kernel with results that are known beforehand.
type answering struct {
	engine.Kernel
	results []apply.Result
}

func (a answering) Apply(context.Context, plan.Plan, uint64) []apply.Result { return a.results }

// TestWritesAreCounted: by what they go to and whether they worked; what was not written, or is not written yet, is not counted.
func TestWritesAreCounted(t *testing.T) {
	t.Parallel()
	result := func(k plan.Knob, o apply.Outcome, took time.Duration) apply.Result {
		return apply.Result{Setting: plan.Setting{Knob: k}, Outcome: o, Took: took}
	}
	results := []apply.Result{
		result(plan.CPUQuota, apply.Written, time.Millisecond), result(plan.MemoryHigh, apply.Failed, time.Millisecond),
		result(plan.IOWeight, apply.Written, time.Millisecond), result(plan.RDTSchemata, apply.Written, time.Millisecond),
		result(plan.VMMinFree, apply.Written, time.Millisecond), result(plan.NetShape, apply.Failed, time.Millisecond),
		result(plan.CPUQuota, apply.Unchanged, 0), result(plan.CPUQuota, apply.Failed, 0), result(plan.CPUQuota, apply.Gone, time.Millisecond),
		result(plan.MemoryLimit, apply.Pending, 0), result(plan.CPUQuota, apply.Observed, 0),
	}
	d := &Daemon{}
	d.wrote(results) // before there is anybody to count
	reg := prometheus.NewRegistry()
	var err error
	if d.count, err = metrics.NewAgent(reg, metrics.AgentNames{Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	d.log = slog.New(slog.DiscardHandler)
	d.cfg.RunDir, d.cfg.Host.Proc = t.TempDir(), "/proc"
	var o host.Options
	d.besideOthers(&o)
	if got := o.Kernel(answering{results: results}).Apply(t.Context(), nil, 1); len(got) != len(results) {
		t.Errorf("%d results", len(got))
	}
	const name = "koordlet_resource_update_duration_milliseconds "
	want := map[string]uint64{
		name + "success cgroup": 2, name + "failed cgroup": 1, name + "success resctrl-schema": 1, name + "success default": 1, name + "failed default": 1,
	}
	if diff := cmp.Diff(want, counts(t, reg)); diff != "" {
		t.Error(diff)
	}
}

// TestReadingsAreCounted: what was not its turn is not counted.
func TestReadingsAreCounted(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	d := &Daemon{}
	var err error
	if d.count, err = metrics.NewAgent(reg, metrics.AgentNames{Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	d.countStep(&agent.Look{Scan: collect.Report{CPUs: collect.ReadWell, NUMA: collect.ReadFailed, Samples: 7, Failed: 1}})
	d.countStep(&agent.Look{Scan: collect.Report{CPUs: collect.ReadWell, NUMA: collect.ReadWell, Disks: collect.ReadWell}})
	const name = "koordlet_collect_node_"
	want := map[string]uint64{
		"koord_rt_koordlet_samples_total": 7, "koord_rt_koordlet_read_errors_total": 1, "koord_rt_koordlet_loop_duration_seconds other": 2,
		name + "cpu_info_status n1 succeeded": 2, name + "numa_info_status n1 failed": 1, name + "numa_info_status n1 succeeded": 1,
		name + "local_storage_info_status n1 succeeded": 1,
	}
	if diff := cmp.Diff(want, counts(t, reg)); diff != "" {
		t.Error(diff)
	}
}

// TestKubeletAnswersAreHeard: each answer of the kubelet, also one that refuses; no answer is none.
func TestKubeletAnswersAreHeard(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
	var heard []string
	c := &cluster{name: "n1", answered: func(method, path string, code int, took time.Duration) {
		heard = append(heard, fmt.Sprint(method, " ", path, " ", code, " ", took > 0))
	}}
	client, err := c.kubelet(&config.Kubelet{Endpoint: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	k := pods.NewKubelet(s.URL, client)
	if _, _, err := k.List(t.Context()); err == nil {
		t.Error("a refusal is a list")
	}
	s.Close()
	if _, _, err := k.List(t.Context()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("of a server that has gone: %v", err)
	}
	if diff := cmp.Diff([]string{"GET /pods 403 true"}, heard); diff != "" {
		t.Error(diff)
	}
}
