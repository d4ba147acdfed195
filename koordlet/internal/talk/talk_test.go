// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package talk

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/predict"
)

func TestScrape(t *testing.T) {
	t.Parallel()
	var lines []string
	for l := range strings.Lines(text(t, example(t))) {
		if !strings.HasPrefix(l, "# HELP") {
			lines = append(lines, l)
		}
	}
	golden(t, "metrics", strings.Join(lines, ""))
}

// Together with the counters there is every metric of the catalogue, once, and nothing else.
func TestEveryMetricIsTold(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	count, err := metrics.NewAgent(reg, metrics.AgentNames{Node: "node-001", Loops: []string{"suppress"}, Features: []string{"CPUEvict"}})
	if err != nil {
		t.Fatal(err)
	}
	count.Loop("suppress", time.Millisecond, true)
	count.Evict("CPUEvict", metrics.EvictionDone)
	count.APIWrite("nodemetric", false)
	count.KubeletAnswered("GET", "/pods", 200, time.Millisecond)
	count.Updated(metrics.UpdateCgroup, time.Millisecond, false)
	for c := range metrics.NumCollects {
		count.Collected(c, false)
	}
	if err := reg.Register(example(t)); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, f := range families {
		got = append(got, f.GetName())
	}
	for _, m := range metrics.AgentCatalogue() {
		want = append(want, m.Name)
	}
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-catalogue +served):\n%s", d)
	}
}

// What nobody has measured for three intervals has no series; what is read less often may be older.
func TestOldValuesAreNotTold(t *testing.T) {
	t.Parallel()
	snap, state := snapshot(t, spark())
	for name, c := range map[string]struct {
		age              unit.Micros
		cpu, psi, cycles bool
	}{
		"present":    {unit.Second, true, true, true},
		"5 s ago":    {5 * unit.Second, false, true, true},
		"40 s ago":   {40 * unit.Second, false, false, true},
		"10 min ago": {10 * unit.Minute, false, false, false},
	} {
		w := window.New(window.Options{})
		at := now - c.age
		measure(w, sample.OfNode(), now, cpuMemory(1, 1)) // time goes on
		measure(w, sample.OfPod("uid-spark"), at, map[sample.Metric]float64{sample.CPUUsage: 1, sample.PSICPUSome: 0.5, sample.NetworkRTT: 300})
		measure(w, sample.OfContainer("c-spark"), at, map[sample.Metric]float64{sample.Cycles: 1})
		got := text(t, newTalk(w, who{snap, state}, facts()))
		for metric, want := range map[string]bool{
			"koord_rt_koordlet_pod_cpu_cores{": c.cpu, "koordlet_pod_psi{": c.psi, "koordlet_container_cpi{": c.cycles,
			"koord_rt_koordlet_pod_network_rtt_seconds{": c.cycles, // pods wait in line for it
		} {
			if strings.Contains(got, "\n"+metric) != want {
				t.Errorf("%s: %s told: %t", name, metric, !want)
			}
		}
	}
}

// Without one of the two predictors there is no result, which upstream writes as 0 with the status 1.
func TestPredictionThatIsNotKnown(t *testing.T) {
	t.Parallel()
	f := facts()
	f.Prediction = &predict.Prediction{Pods: f.Prediction.Pods}
	got := text(t, newTalk(measured(), who{}, f))
	for _, want := range []string{
		`koordlet_node_resource_priority_reclaimable_status{node="node-001",priority="koord-prod"} 1`,
		`koordlet_node_priority_resource_reclaimable{node="node-001",priority="koord-prod",resource="cpu",unit="core"} 0`,
		`koordlet_node_predicted_resource_peak{node="node-001",predictor="podReclaimablePredictor",resource="cpu",unit="core"} 2.2`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("missing %s", want)
		}
	}
	for _, absent := range []string{"priorityReclaimablePredictor", "minPredictor"} {
		if strings.Contains(got, absent) {
			t.Errorf("%s has said nothing", absent)
		}
	}
}

// A source that has gone mad makes no more series than the limits say.
func TestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	f := facts()
	var list []*pods.Pod
	w := window.New(window.Options{MaxBytes: 64 << 20})
	for i := range maxPods + 10 {
		p := &pods.Pod{UID: fmt.Sprintf("u%04d", i), Namespace: "d", Name: fmt.Sprintf("p%04d", i), Phase: pods.PhaseRunning}
		for j := range 3 {
			c := pods.Container{Name: fmt.Sprint(j), ID: fmt.Sprintf("c%04d-%d", i, j)}
			p.Containers = append(p.Containers, c)
			measure(w, sample.OfContainer(c.ID), now, cpuMemory(1, 1))
		}
		measure(w, sample.OfPod(p.UID), now, cpuMemory(1, 1))
		list = append(list, p)
		name := fmt.Sprintf("app%04d", i)
		f.HostApps = append(f.HostApps, HostApp{Name: name})
		measure(w, sample.OfHostApp(name), now, cpuMemory(1, 1))
		f.Loops = append(f.Loops, status.Loop{Name: name, State: status.StateActive})
		f.Sources = append(f.Sources, status.Source{Name: name, State: status.StateActive})
		f.Evictions = append(f.Evictions, status.Eviction{Time: wall, Name: name, Outcome: status.OutcomeEvicted})
	}
	snap, state := snapshot(t, list...)
	got := text(t, newTalk(w, who{snap, state}, f))
	for metric, want := range map[string]int{
		"koord_rt_koordlet_pod_cpu_cores{": maxPods, "koord_rt_koordlet_container_cpu_cores{": maxContainers,
		"koordlet_host_application_resource_usage{": 2 * (maxHostApps - 1), // yarn has no samples here
		"koord_rt_koordlet_loop_state{":             status.MaxLoops - 1,   // evict has no state
		"koord_rt_koordlet_source_state{":           status.MaxSources,
		"koordlet_pod_eviction_detail{":             status.MaxEvictions,
	} {
		if n := strings.Count(got, "\n"+metric); n != want {
			t.Errorf("%s: %d series, want %d", metric, n, want)
		}
	}
	for _, want := range []string{`left_out{what="pods"} 10`, fmt.Sprintf(`left_out{what="containers"} %d`, 3*maxPods-maxContainers)} {
		if !strings.Contains(got, want) {
			t.Errorf("missing %s", want)
		}
	}
}

// An agent that has just started knows nothing; that is no error.
func TestNothingIsKnown(t *testing.T) {
	t.Parallel()
	empty := New(Options{Window: window.New(window.Options{}), Facts: func() *Facts { return &Facts{} }, Now: func() unit.Micros { return 0 }})
	got := text(t, empty)
	for _, f := range []string{"node_used", "pod_cpu", "be_", "ls_used", "predicted", "start_time"} {
		if strings.Contains(got, f) {
			t.Errorf("%s is told of nothing", f)
		}
	}
	want := &status.Agent{Classes: []status.Class{{Name: "LSE"}, {Name: "LSR"}, {Name: "LS"}, {Name: "BE"}, {Name: "SYSTEM"}, {Name: "none"}}, Sources: []status.Source{}}
	if d := cmp.Diff(want, empty.Status()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Scrapes and samples at once, for the race detector.
func TestScrapeWhileMeasuring(t *testing.T) {
	t.Parallel()
	w := measured()
	snap, state := snapshot(t, spark(), shop())
	talk := newTalk(w, who{snap, state}, facts())
	reg := prometheus.NewRegistry()
	reg.MustRegister(talk)
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for range 20 {
				if _, err := reg.Gather(); err != nil {
					t.Error(err)
				}
				talk.Status()
			}
		})
	}
	for i := range 200 {
		measure(w, sample.OfPod("uid-spark"), now+unit.Micros(i)*unit.Millisecond, cpuMemory(1, 1))
	}
	group.Wait()
}

func TestSection(t *testing.T) {
	t.Parallel()
	got := example(t).Status()
	frac := func(v float64) *unit.Fraction { return ptr(unit.Fraction(v)) }
	use := func(milli unit.MilliCPU, bytes unit.Bytes) status.Usage {
		return status.Usage{CPU: &milli, Memory: &bytes}
	}
	f := facts()
	want := &status.Agent{
		Sources: append([]status.Source{got.Sources[0]}, f.Sources...), Collectors: f.Collectors, Loops: f.Loops, BE: f.BE, Evictions: f.Evictions, NodeSLO: f.NodeSLO,
		Node: status.Node{
			Name: "node-001", Capacity: status.Amounts{CPU: 32000, Memory: 128 << 30}, Batch: status.Amounts{CPU: 9800, Memory: 40 << 30},
			Used: use(15000, 64<<30), System: use(2000, 4<<30), Requests: status.Amounts{CPU: 1500, Memory: 3 << 30},
			Pressure: status.Pressure{CPU: frac(0.02), Memory: frac(0.5)},
		},
		Classes: []status.Class{
			{Name: "LSE", Used: use(2000, 2<<30)}, {Name: "LSR", Used: use(1000, 1<<30)},
			{Name: "LS", Pods: 1, Used: use(5000, 5<<30), Requests: status.Amounts{CPU: 500, Memory: 1 << 30}},
			{Name: "BE", Pods: 1, Used: use(4000, 4<<30), Requests: status.Amounts{CPU: 1000, Memory: 2 << 30}},
			{Name: "SYSTEM", Used: use(0, 0)}, {Name: "none", Used: use(0, 0)},
		},
		Pods: []status.Pod{
			{
				Namespace: "web", Name: "shop-5d", UID: "uid-shop", Class: "LS", Priority: "koord-prod", Used: use(2500, 1<<30),
				Requests: status.Amounts{CPU: 500, Memory: 1 << 30},
			},
			{
				Namespace: "default", Name: "spark-1", UID: "uid-spark", Class: "BE", Priority: "koord-batch", Used: use(1250, 1<<30),
				Requests: status.Amounts{CPU: 1000, Memory: 2 << 30}, Limits: status.Amounts{CPU: 2000, Memory: 4 << 30},
				Throttled: frac(0.25), Pressure: status.Pressure{CPU: frac(0.125)},
			},
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if s := got.Sources[0]; s.Name != "pods" || s.State != status.StateActive || s.Since.IsZero() {
		t.Errorf("source of pods: %+v", s)
	}
}

func TestPodsSource(t *testing.T) {
	t.Parallel()
	since := wall.Add(-time.Minute)
	for name, c := range map[string]struct {
		state pods.State
		want  status.Source
	}{
		"nobody": {pods.State{}, status.Source{
			Name: "pods", State: status.StateOff, Reason: "neither kubelet nor API server is configured: pods are known from the runtime only",
		}},
		"kubelet": {
			pods.State{Source: pods.FromKubelet, Current: true, Kubelet: pods.Health{Configured: true, OK: true, Since: since}},
			status.Source{Name: "pods", State: status.StateActive, Since: since},
		},
		"API server instead": {
			pods.State{
				Source: pods.FromAPI, Current: true, Kubelet: pods.Health{Configured: true, Reason: "refused"},
				API: pods.Health{Configured: true, OK: true, Since: since},
			},
			status.Source{Name: "pods", State: status.StateDegraded, Reason: "pods from the API server: refused", Since: since},
		},
	} {
		got, ok := (&Input{PodsState: &c.state}).podsSource()
		if d := cmp.Diff(c.want, got); d != "" || !ok {
			t.Errorf("%s (-want +got): %s", name, d)
		}
	}
}

// BenchmarkScrape is a node of 80 pods with 240 containers that has all there is to measure.
func BenchmarkScrape(b *testing.B) {
	w := window.New(window.Options{})
	var list []*pods.Pod
	all := map[sample.Metric]float64{}
	for m := sample.Metric(1); m < sample.NumMetrics; m++ {
		all[m] = 0.5
	}
	for i := range 80 {
		p := &pods.Pod{UID: fmt.Sprintf("3f1d2c4e-0000-4000-8000-%012d", i), Namespace: "default", Name: fmt.Sprintf("shop-5d8f7c9b6d-%05d", i)}
		measure(w, sample.OfPod(p.UID), now, all)
		for j := range 3 {
			c := pods.Container{Name: fmt.Sprint("app-", j), ID: fmt.Sprintf("%064d", 3*i+j)}
			measure(w, sample.OfContainer(c.ID), now, all)
			p.Containers = append(p.Containers, c)
		}
		list = append(list, p)
	}
	snap, state := snapshot(b, list...)
	talk := newTalk(w, who{snap, state}, facts())
	reg := prometheus.NewRegistry()
	reg.MustRegister(talk)
	b.Run("scrape", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			families, err := reg.Gather()
			if err != nil {
				b.Fatal(err)
			}
			n := 0
			for _, f := range families {
				n += len(f.Metric)
			}
			b.ReportMetric(float64(n), "series")
		}
	})
	b.Run("status", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			talk.Status()
		}
	})
}
