// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package talk

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"go.uber.org/goleak"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/predict"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const now = 1000 * unit.Second

var wall = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

// listed is a kubelet that knows these pods.
type listed []*pods.Pod

func (l listed) List(context.Context) ([]*pods.Pod, []string, error) {
	return slices.Clone(l), nil, nil
}

func (listed) Weakness() string { return "" }

// snapshot is what a keeper makes of pods; its clock stands at the beginning of synctest's.
func snapshot(t testing.TB, list ...*pods.Pod) (snap *pods.Snapshot, state *pods.State) {
	t.Helper()
	run := func(ctx context.Context, wait func()) {
		ctx, cancel := context.WithCancel(ctx)
		k := pods.New(pods.Options{Kubelet: listed(list)})
		var group sync.WaitGroup
		group.Go(func() { _ = k.Run(ctx) })
		wait()
		snap, state = k.Snapshot(), k.State()
		cancel()
		group.Wait()
	}
	if tt, ok := t.(*testing.T); ok {
		synctest.Test(tt, func(t *testing.T) { run(t.Context(), synctest.Wait) })
		return snap, state
	}
	ready := make(chan struct{})
	k := pods.New(pods.Options{Kubelet: listed(list), OnChange: func(*pods.Snapshot) { close(ready) }})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var group sync.WaitGroup
	group.Go(func() { _ = k.Run(ctx) })
	<-ready
	snap, state = k.Snapshot(), k.State()
	cancel()
	group.Wait()
	return snap, state
}

func batch(milli unit.MilliCPU, bytes unit.Bytes) amount.Amounts {
	return amount.Amounts{BatchCPU: milli, BatchMemory: bytes}
}

// spark is a BE pod, shop an LS one, ended one that has.
func spark() *pods.Pod {
	return &pods.Pod{
		UID: "uid-spark", Namespace: "default", Name: "spark-1", QoS: protocol.QoSBE, Phase: pods.PhaseRunning,
		Containers: []pods.Container{{
			Name: "executor", ID: "c-spark", Running: true,
			Resources: pods.Resources{Requests: batch(1000, 2<<30), Limits: batch(2000, 4<<30)},
		}},
	}
}

func shop() *pods.Pod {
	return &pods.Pod{
		UID: "uid-shop", Namespace: "web", Name: "shop-5d", Kube: protocol.KubeBurstable, Phase: pods.PhaseRunning,
		Containers: []pods.Container{
			{Name: "app", ID: "c-shop", Running: true, Resources: pods.Resources{Requests: amount.Amounts{CPU: 500, Memory: 1 << 30}}},
			{Name: "waiting"},
		},
	}
}

func ended() *pods.Pod {
	return &pods.Pod{UID: "uid-job", Namespace: "default", Name: "job", Phase: pods.PhaseSucceeded, Containers: []pods.Container{{Name: "x", ID: "c-job"}}}
}

// measure puts one sample of each metric of a subject, in the metric's unit.
func measure(w *window.Memory, s sample.Subject, at unit.Micros, values map[sample.Metric]float64) {
	var list []sample.Sample
	for m := sample.Metric(1); m < sample.NumMetrics; m++ {
		if v, ok := values[m]; ok {
			list = append(list, sample.Sample{Subject: s, Metric: m, Value: v, At: at})
		}
	}
	w.Append(list)
}

func cpuMemory(cores, bytes float64) map[sample.Metric]float64 {
	return map[sample.Metric]float64{sample.CPUUsage: cores, sample.MemoryUsage: bytes}
}

// measured is the worked example of suppression (koordinator-node.md §12.8): 32 CPUs, LS pods use 8, host applications 1,
// the system 2, BE 4.
func measured() *window.Memory {
	w := window.New(window.Options{})
	at := now - unit.Second
	measure(w, sample.OfNode(), at, map[sample.Metric]float64{
		sample.CPUUsage: 15, sample.MemoryUsage: 64 << 30, sample.PSICPUSome: 0.02, sample.PSICPUFull: 0, sample.PSIMemorySome: 0.5,
	})
	measure(w, sample.OfSystem(), at, cpuMemory(2, 4<<30))
	for q, used := range map[protocol.QoS]float64{
		protocol.QoSNone: 0, protocol.QoSLSE: 2, protocol.QoSLSR: 1, protocol.QoSLS: 5, protocol.QoSBE: 4, protocol.QoSSystem: 0,
	} {
		measure(w, sample.OfQoS(q), at, cpuMemory(used, used*(1<<30)))
	}
	measure(w, sample.OfNUMA(1), at, cpuMemory(7, 1<<30))
	measure(w, sample.OfSystemNUMA(1), at, cpuMemory(1, 1<<29))
	measure(w, sample.OfHostApp("yarn"), at, cpuMemory(1, 3<<30))
	measure(w, sample.OfPod("uid-spark"), at, map[sample.Metric]float64{
		sample.CPUUsage: 1.25, sample.MemoryUsage: 1 << 30, sample.MemoryWithPageCache: 2 << 30, sample.CPUThrottled: 0.25,
		sample.RunQueueDelay: 1_500_000, sample.PSICPUSome: 0.125, sample.PSICPUFull: 0.0625, sample.PSIIOFull: 0.5,
		sample.DiskReadBytes: 1000, sample.DiskWriteBytes: 2000, sample.NetworkReceive: 3000, sample.NetworkTransmit: 4000,
		sample.MemoryAllocLatency: 250_000, sample.DiskLatency: 4000, sample.NetworkRTT: 300,
		sample.LLCOccupancy: 1 << 19, sample.MemoryBandwidthTotal: 600, sample.MemoryBandwidthLocal: 500,
	})
	measure(w, sample.OfContainer("c-spark"), at, map[sample.Metric]float64{
		sample.CPUUsage: 1, sample.MemoryUsage: 1 << 29, sample.CPUThrottled: 0.5, sample.PSIMemorySome: 0.25,
		sample.Cycles: 3e6, sample.Instructions: 2e6,
	})
	measure(w, sample.OfPod("uid-shop"), at, cpuMemory(2.5, 1<<30))
	measure(w, sample.OfContainer("c-shop"), at, cpuMemory(2.25, 1<<29))
	measure(w, sample.OfLLC("BE", 0), at, map[sample.Metric]float64{
		sample.LLCOccupancy: 1 << 20, sample.MemoryBandwidthTotal: 5000, sample.MemoryBandwidthLocal: 4000,
	})
	return w
}

func facts() *Facts {
	return &Facts{
		Node: "node-001", Started: wall.Add(-time.Hour), Version: "v0.3.0", Runtime: "containerd", RuntimeVersion: "2.2.1",
		Capacity: amount.Amounts{CPU: 32000, Memory: 128 << 30}, Allocatable: ptr(batch(9800, 40<<30)),
		Sources:    []status.Source{{Name: "nodeslo", State: status.StateDegraded, Reason: "API server away"}},
		Collectors: []status.Source{{Name: "cpi", State: status.StateUnsupported, Reason: "no perf"}},
		Loops:      []status.Loop{{Name: "suppress", State: status.StateActive, Decision: "10 CPUs 0-9", At: wall.Add(-time.Second)}, {Name: "evict"}},
		BE:         status.BE{Mode: "cpuset", CPUs: "0-9", Limit: ptr(unit.MilliCPU(10000)), Allowance: ptr(unit.MilliCPU(9800))},
		Evictions: []status.Eviction{
			{Time: wall.Add(-time.Hour), Namespace: "default", Name: "old", Feature: "CPUEvict", Outcome: status.OutcomeEvicted},
			{Time: wall.Add(-time.Minute), Namespace: "default", Name: "spark-0", Feature: "BEMemoryEvict", Outcome: status.OutcomeEvicted},
			{Time: wall.Add(-time.Second), Namespace: "default", Name: "spark-0", Feature: "BEMemoryEvict", Outcome: status.OutcomeEvicted},
			{Time: wall, Namespace: "default", Name: "spark-1", Feature: "BEMemoryEvict", Outcome: status.OutcomeRefused},
		},
		NodeSLO: &status.NodeSLO{Generation: 3, Overrides: []status.Override{
			{Field: "cpuBurstStrategy.cpuBurstPercent", Value: "300", By: []status.Owner{{Manager: "kubectl-edit", Time: wall}}},
		}},
		HostApps: []HostApp{{Name: "yarn", Priority: protocol.PriorityBatch, QoS: protocol.QoSBE}},
		NUMA:     []int{0, 1}, CacheDomains: []int{0, 1}, CacheGroups: []string{"BE", ""},
		// A pod of 4 CPUs with a p95 of 2 (§12.8), and what its class says.
		Prediction: &predict.Prediction{
			Reclaimable: predict.Resources{CPU: 1500, Memory: 1 << 30}, Peak: predict.Resources{CPU: 2200, Memory: 3 << 30},
			Pods:    predict.Part{Known: true, Reclaimable: predict.Resources{CPU: 1800, Memory: 1 << 30}, Peak: predict.Resources{CPU: 2200, Memory: 3 << 30}},
			Classes: predict.Part{Known: true, Reclaimable: predict.Resources{CPU: 1500, Memory: 2 << 30}, Peak: predict.Resources{CPU: 2100, Memory: 1 << 30}},
			// The other classes are cold.
			ByQoS:      [6]predict.Sum{{Class: "LSE"}, {}, {Class: "LS", Known: true, Peak: predict.Resources{CPU: 2300, Memory: 3 << 30}}},
			ByPriority: [5]predict.Sum{{Class: "none"}, {Class: "koord-prod", Known: true, Peak: predict.Resources{CPU: 2100, Memory: 1 << 30}}},
		},
		SharePools:   []node.Pool{{CPUs: topo.CPUs(2, 3)}, {Node: 1, CPUs: topo.CPUs(10)}},
		BESharePools: []node.Pool{{CPUs: topo.CPUs(3)}},
		Scaled:       []Scaled{{Container: "c-shop", Quota: 240000, Burst: 200000}, {Container: "gone", Quota: 1}},
		Network:      []Traffic{{Direction: "egress", Class: "be", Bytes: 123456, Dropped: 7}},
		Victims:      []Victim{{Pod: "uid-shop", Signal: "CPU pressure", Now: 0.35, Usual: 0.05}, {Pod: "gone", Signal: "CPU pressure"}},
		Generations:  Generations{Strategy: 3, Dynamic: 71, Pods: 9},
		Goroutines:   40,
	}
}

// who is a keeper that does not run.
type who struct {
	snap  *pods.Snapshot
	state *pods.State
}

func (w who) Snapshot() *pods.Snapshot { return w.snap }
func (w who) State() *pods.State       { return w.state }

func newTalk(w Window, people who, f *Facts) *Talk {
	return New(Options{
		Window: w, Pods: people, Facts: func() *Facts { return f }, Now: func() unit.Micros { return now }, Wall: func() time.Time { return wall },
	})
}

// text is what a scrape gets. The pedantic registry checks each point against its description.
func text(t *testing.T, c ...prometheus.Collector) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	for _, c := range c {
		if err := reg.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return exposition(t, families)
}

func exposition(t *testing.T, families []*dto.MetricFamily) string {
	t.Helper()
	var b strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

func example(t *testing.T) *Talk {
	snap, state := snapshot(t, spark(), shop(), ended())
	good := *state
	good.Good = wall.Add(-4 * time.Second)
	return newTalk(measured(), who{snap, &good}, facts())
}
