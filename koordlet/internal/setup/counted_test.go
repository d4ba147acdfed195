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
	"strings"
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
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
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

// TestAPIWritesAreCounted: each write to the API server by what it goes to and how it ended, and neither a reading nor a dry run.
func TestAPIWritesAreCounted(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "nodeslos") {
			http.Error(w, "no", http.StatusForbidden)
		}
	}))
	defer srv.Close()
	cfg := off()
	cfg.APIServer = config.APIServer{Mode: config.APIServerAuto, Kubeconfig: kubeconfig(t, srv.URL)}
	c, err := newCluster(&cfg, "v1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	reg := prometheus.NewRegistry()
	d := &Daemon{cluster: c}
	if err := d.countTo(reg); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, read := c.client.Get(ctx, kube.NodeMetrics, "n1")
	if err := errors.Join(
		read, c.client.Try(ctx, kube.NodeResourceTopologies, 1), c.client.ReplaceStatus(ctx, kube.NodeMetrics, "n1", "us", 1), c.client.Create(ctx, kube.NodeResourceTopologies, "us", 1),
		c.client.Merge(ctx, kube.NodeResourceTopologies, "n1", "us", 1), c.client.Evict(ctx, "a", "b", "u", 0), c.client.DeletePod(ctx, "a", "b", "u", 0),
	); err != nil {
		t.Fatal(err)
	}
	if c.client.ReplaceStatus(ctx, kube.NodeSLOs, "n1", "us", 1) == nil {
		t.Error("a refusal is a success")
	}
	ended, end := context.WithCancel(ctx)
	end()
	if c.client.ReplaceStatus(ended, kube.NodeMetrics, "n1", "us", 1) == nil {
		t.Error("written after the end")
	}
	const name = "koord_rt_koordlet_api_writes_total "
	want := map[string]uint64{name + "nodemetrics ok": 1, name + "nodeslos error": 1, name + "noderesourcetopologies ok": 2, name + "pods ok": 2}
	if diff := cmp.Diff(want, counts(t, reg)); diff != "" {
		t.Error(diff)
	}
}

// TestStepsAreCounted: a round that failed as one that did, and the reaction with what the call waited before the step.
func TestStepsAreCounted(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	d := &Daemon{cluster: &cluster{name: "n1"}}
	if err := d.countTo(reg); err != nil {
		t.Fatal(err)
	}
	d.countStep(&agent.Look{Took: time.Millisecond, Failed: true})
	d.countStep(&agent.Look{Took: time.Millisecond, Reaction: 120 * time.Millisecond, Facts: decide.Facts{Urgent: true}})
	const name = "koord_rt_koordlet_"
	want := map[string]uint64{
		name + "loop_duration_seconds tick": 1, name + "loop_duration_seconds pressure": 1, name + "loop_errors_total tick": 1, name + "reaction_seconds": 1,
	}
	if diff := cmp.Diff(want, counts(t, reg)); diff != "" {
		t.Error(diff)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name+"reaction_seconds" && f.Metric[0].GetHistogram().GetSampleSum() < 0.12 {
			t.Errorf("a reaction of %g s", f.Metric[0].GetHistogram().GetSampleSum())
		}
	}
}
