// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/koordlet/internal/predict"
	"github.com/koord-rt/koord-rt/koordlet/internal/report"
	"github.com/koord-rt/koord-rt/model/unit"
	policy "github.com/koord-rt/koord-rt/policy/predict"
)

const gib = 1 << 30

func TestPredictConfig(t *testing.T) {
	t.Parallel()
	defaults := config.DefaultKoordlet().Predict
	got := predictConfig(&defaults)
	if d := cmp.Diff(policy.Default(), got); d != "" || got.Validate() != nil {
		t.Errorf("the defaults are not upstream's (-want +got):\n%s%v", d, got.Validate())
	}
	for _, edge := range []config.Predict{
		{
			Interval: config.Duration(10 * time.Second), CPUHalfLife: config.Duration(time.Minute), MemoryHalfLife: config.Duration(time.Minute),
			CPUPercentile: 60, MemoryPercentile: 60,
		},
		{
			Interval: config.Duration(time.Hour), ColdStart: config.Duration(720 * time.Hour), SafetyMarginPercent: 1000,
			CPUHalfLife: config.Duration(720 * time.Hour), MemoryHalfLife: config.Duration(720 * time.Hour), CPUPercentile: 100, MemoryPercentile: 100,
		},
	} {
		if err := predictConfig(&edge).Validate(); err != nil {
			t.Errorf("%+v: %v", edge, err)
		}
	}
	c := defaults
	c.ColdStart, c.SafetyMarginPercent = config.Duration(time.Hour), 25
	if got := predictConfig(&c); got.ColdStart != 60*unit.Minute || got.Margin.Prod != 25 || got.Margin.System != 25 {
		t.Errorf("%+v", got)
	}
}

// TestPredictClasses: every class that the configuration may name has what it says and no other has, and what it leaves out is as for all.
func TestPredictClasses(t *testing.T) {
	t.Parallel()
	cfg, _, err := config.LoadKoordlet([]byte(`apiVersion: koord-rt.dev/v1alpha1
kind: KoordletConfig
predict:
  safetyMarginPercent: 20
  cpuPercentile: 90
  memoryPercentile: 100
  classes:
    koord-prod: {safetyMarginPercent: 0, cpuPercentile: 98}
    koord-mid: {memoryPercentile: 60}
    koord-batch: {safetyMarginPercent: 1}
    koord-free: {safetyMarginPercent: 2, memoryPercentile: 95}
    none: {cpuPercentile: 100}
    system: {safetyMarginPercent: 3, cpuPercentile: 60}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Default()
	want.CPU.Percentile, want.Memory.Percentile = 90, 100
	want.CPU.Classes = policy.PerClass[int]{Prod: 98, None: 100, System: 60}
	want.Memory.Classes = policy.PerClass[int]{Mid: 60, Free: 95}
	want.Margin = policy.Margin{Prod: 0, Mid: 20, Batch: 1, Free: 2, None: 20, System: 3}
	got := predictConfig(&cfg.Predict)
	if d := cmp.Diff(want, got); d != "" || got.Validate() != nil {
		t.Errorf("(-want +got):\n%s%v", d, got.Validate())
	}
}

// Nothing is learnt from a list that nobody confirms, or for a node that is not known.
func TestPredictable(t *testing.T) {
	t.Parallel()
	node := func(raw string) *kube.Node {
		return &kube.Node{
			Allocatable: amount.Amounts{CPU: 48000, Memory: 64 * gib}, Annotations: map[string]string{protocol.AnnotationRawAllocatable: raw},
		}
	}
	list := &pods.Snapshot{Generation: 3, Pods: []*pods.Pod{{UID: "a", Phase: pods.PhaseRunning}}}
	for name, c := range map[string]struct {
		state pods.State
		list  *pods.Snapshot
		node  *kube.Node
		want  unit.MilliCPU
	}{
		"known":                    {pods.State{Current: true}, list, node(""), 48000},
		"amplified":                {pods.State{Current: true}, list, node(`{"cpu":"32"}`), 32000},
		"amplified by who knows":   {pods.State{Current: true}, list, node(`{`), 0},
		"kubelet away":             {pods.State{}, list, node(""), 0},
		"no answer yet":            {pods.State{Current: true}, &pods.Snapshot{}, node(""), 0},
		"no Node object":           {pods.State{Current: true}, list, nil, 0},
		"node that has no figures": {pods.State{Current: true}, list, &kube.Node{}, 0},
	} {
		got, ok := predictable(&c.state, c.list, c.node)
		if ok != (c.want != 0) || got.Allocatable.CPU != c.want || ok && len(got.Pods) != 1 {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}

// Worked example of koordinator-node.md §12.8: request 4, peak 2.2, so 1.8 can be lent. Before anything is known nothing is
// told; from cold models 0 is.
func TestPredictionIsReported(t *testing.T) {
	t.Parallel()
	var warm predict.Report
	warm.Known, warm.Classes.Known, warm.Models, warm.At = true, true, 8, 50*unit.Second
	warm.Reclaimable, warm.Peak = policy.Resources{CPU: 1800, Memory: 2 * gib}, policy.Resources{CPU: 2200, Memory: 6 * gib}
	var cold predict.Report
	cold.Known, cold.Unpredicted, cold.Skipped, cold.Peak = true, 1, 2, policy.Resources{CPU: 4000, Memory: 8 * gib}
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		report            predict.Report
		reclaimable, peak *report.Figures
		state, decision   string
	}{
		"warm": {warm, &report.Figures{CPU: 1800, Memory: 2 * gib}, &report.Figures{CPU: 2200, Memory: 6 * gib}, status.StateActive, "8 models, 0 pods"},
		"cold": {cold, &report.Figures{}, &report.Figures{CPU: 4000, Memory: 8 * gib}, status.StateDegraded, "cold: "},
		"none": {predict.Report{Models: 3}, nil, nil, status.StateDegraded, "nothing is told"},
	} {
		var in report.Input
		tellPrediction(&c.report, &in)
		if d := cmp.Diff([]*report.Figures{c.reclaimable, c.peak}, []*report.Figures{in.Reclaimable, in.Peak}); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		l := predictLoop(&c.report, 60*unit.Second, now)
		if l.State != c.state || !strings.HasPrefix(l.Decision, c.decision) {
			t.Errorf("%s: %+v", name, l)
		}
	}
	full := warm
	full.Unkept = "no space left on device"
	if l := predictLoop(&full, 60*unit.Second, now); l.State != status.StateDegraded || !strings.HasSuffix(l.Err, full.Unkept) || !strings.HasPrefix(l.Decision, "8 models") {
		t.Errorf("not kept: %+v", l)
	}
	if l := predictLoop(&warm, 60*unit.Second, now); !l.At.Equal(now.Add(-10 * time.Second)) {
		t.Errorf("told as of %s", l.At)
	}
}
