// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/predict"
)

// requesting is a container that requests native and lent CPUs.
func requesting(cpu, batch unit.MilliCPU, memory unit.Bytes) []pods.Container {
	return []pods.Container{{Name: "app", Resources: pods.Resources{Requests: amount.Amounts{CPU: cpu, BatchCPU: batch, Memory: memory}}}}
}

func TestNodeOf(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := &pods.Snapshot{Generation: 1, Pods: []*pods.Pod{
		{UID: "web", QoS: protocol.QoSLS, Phase: pods.PhaseRunning, Started: at, Containers: requesting(4000, 0, 8*gib)},
		{UID: "plain", Phase: pods.PhaseRunning, Started: at, Deleted: at, Containers: requesting(500, 0, gib)},
		{UID: "spark", QoS: protocol.QoSBE, Phase: pods.PhaseRunning, Started: at, Containers: requesting(0, 30000, 0)},
		{UID: "mid", PriorityClass: protocol.PriorityMid, QoS: protocol.QoSLS, Phase: pods.PhaseRunning, Started: at},
		{UID: "init", Phase: pods.PhasePending, Started: at, Containers: []pods.Container{{Name: "setup", Kind: pods.Init, Running: true}}},
		{UID: "pulling", PriorityClass: protocol.PriorityProd, Phase: pods.PhasePending, Containers: requesting(2000, 0, gib)},
		{UID: "done", Phase: pods.PhaseSucceeded, Containers: requesting(9000, 0, gib)},
	}}
	want := Node{
		Allocatable: predict.Resources{CPU: 16000, Memory: 64 * gib},
		Pods: []predict.Pod{
			{UID: "web", Priority: protocol.PriorityProd, QoS: protocol.QoSLS, Started: wall(at), Request: predict.Resources{CPU: 4000, Memory: 8 * gib}},
			{UID: "plain", Started: wall(at), Terminating: true, Request: predict.Resources{CPU: 500, Memory: gib}},
			{UID: "spark", Priority: protocol.PriorityBatch, QoS: protocol.QoSBE, Started: wall(at)},
			{UID: "mid", Priority: protocol.PriorityMid, QoS: protocol.QoSLS, Started: wall(at)},
			{UID: "init", Started: wall(at)},
		},
		Waiting: []predict.Pod{{UID: "pulling", Priority: protocol.PriorityProd, Request: predict.Resources{CPU: 2000, Memory: gib}}},
	}
	if d := cmp.Diff(want, NodeOf(s, want.Allocatable)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestAllocatable(t *testing.T) {
	t.Parallel()
	amplified := amount.Amounts{CPU: 48000, Memory: 64 * gib, BatchCPU: 10000}
	for name, c := range map[string]struct {
		status amount.Amounts
		raw    string
		want   predict.Resources
		ok     bool
	}{
		"as it is":      {amplified, "", predict.Resources{CPU: 48000, Memory: 64 * gib}, true},
		"amplified CPU": {amplified, `{"cpu":"32"}`, predict.Resources{CPU: 32000, Memory: 64 * gib}, true},
		"both":          {amplified, `{"cpu":32,"memory":"60Gi"}`, predict.Resources{CPU: 32000, Memory: 60 * gib}, true},
		"no list":       {amplified, `[]`, predict.Resources{}, false},
		"no quantity":   {amplified, `{"cpu":"many"}`, predict.Resources{}, false},
		"cut":           {amplified, `{"cpu":`, predict.Resources{}, false},
		"no node yet":   {amount.Amounts{}, "", predict.Resources{}, false},
	} {
		got, ok := Allocatable(c.status, c.raw)
		if ok != c.ok || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}

func FuzzAllocatable(f *testing.F) {
	f.Add(`{"cpu":"32","memory":"60Gi"}`)
	f.Add(`{"cpu":-1}`)
	f.Fuzz(func(t *testing.T, raw string) {
		got, ok := Allocatable(amount.Amounts{CPU: 1000, Memory: gib}, raw)
		if ok != (got != predict.Resources{}) || ok && (got.CPU <= 0 || got.Memory <= 0) {
			t.Fatalf("%q: %+v, %v", raw, got, ok)
		}
	})
}

// A pod that waits trains nothing and counts with its request: it will use it.
func TestWaitingPodsCountWithTheirRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.node.Waiting = []predict.Pod{{UID: "w", Priority: protocol.PriorityProd, Request: predict.Resources{CPU: 13000, Memory: gib}}}
		p := b.predictor("")
		b.run(t, p, 3*time.Minute+time.Second)
		got := p.Report()
		if got.Skipped != 0 || got.Models != 14 || got.Unpredicted != 1 || !got.Classes.Known {
			t.Errorf("%+v", got)
		}
		// 16 CPUs − 13 that are waited for − about 2.2 of pod a: less than a's own 1.8.
		if want := 16000 - 13000 - (got.Pods.Peak.CPU - 13000); got.Reclaimable.CPU != want || want < 600 || want > 800 {
			t.Errorf("reclaimable %d, want %d", got.Reclaimable.CPU, want)
		}
	})
}

// Until a model has half of what a cold start brings, its pod stands with its whole request.
func TestColdModels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		p := b.predictor("")
		cfg := predict.Default()
		cfg.ColdStart = 20 * unit.Minute
		p.o.Config, p.set = cfg, predict.NewSet(cfg)
		b.run(t, p, 5*time.Minute+time.Second)
		if got := p.Report(); !got.Known || got.Unpredicted != 1 || got.Classes.Known || got.Reclaimable != (predict.Resources{}) || got.Peak.CPU != 4000 {
			t.Errorf("cold: %+v", got)
		}
		b.run(t, p, 8*time.Minute+time.Second)
		if got := p.Report(); got.Unpredicted != 0 || !got.Classes.Known || got.Pods.Reclaimable.CPU < 1600 || got.Pods.Reclaimable.CPU > 1800 ||
			got.Reclaimable.CPU <= 0 {
			t.Errorf("warm: %+v", got)
		}
	})
}
