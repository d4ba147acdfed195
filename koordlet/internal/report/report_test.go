// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods/podstest"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	gib = 1 << 30

	hour = 60 * unit.Minute
)

func quantity(s string) strategy.Quantity { return strategy.Quantity(s) }

// figure is one subject's steady usage, in cores and bytes.
type figure struct {
	subject sample.Subject
	cores   float64
	memory  float64
}

// filled is a real window with so many seconds of steady figures; other metrics of memory may be added.
func filled(seconds int, figures []figure, also ...sample.Metric) (*window.Memory, unit.Micros) {
	w := window.New(window.Options{})
	at := hour
	for i := range seconds {
		at = hour + unit.Micros(i)*unit.Second
		var batch []sample.Sample
		for _, f := range figures {
			batch = append(batch, sample.Sample{Subject: f.subject, Metric: sample.CPUUsage, Value: f.cores, At: at}, sample.Sample{Subject: f.subject, Metric: sample.MemoryUsage, Value: f.memory, At: at})
			for _, m := range also {
				batch = append(batch, sample.Sample{Subject: f.subject, Metric: m, Value: 2 * f.memory, At: at})
			}
		}
		w.Append(batch)
	}
	return w, at
}

// object is a pod with one container of the same name.
func object(name, labels, qos, phase, requests, limits string) string {
	return fmt.Sprintf(`{"metadata":{"uid":"%[1]s-uid","namespace":"default","name":%[1]q,"labels":%[2]s},
		"spec":{"containers":[{"name":%[1]q,"resources":{"requests":%[5]s,"limits":%[6]s}}]},
		"status":{"phase":%[4]q,"qosClass":%[3]q,"containerStatuses":[{"name":%[1]q,"containerID":"containerd://%[1]s-id"}]}}`, name, labels, qos, phase, requests, limits)
}

// documents is the example of the documents (seed-manifests.md C1): 128 cores, BE 20 and LS 44 of 64 in use, 30 and 70 of
// 100 requested.
func documents(t *testing.T) Input {
	t.Helper()
	pod := func(name string) sample.Subject { return sample.OfPod(name + "-uid") }
	w, at := filled(600, []figure{
		{sample.OfNode(), 64, 64 * gib}, {sample.OfSystem(), 0, 0}, {sample.OfNUMA(0), 40, 40 * gib}, {sample.OfSystemNUMA(0), 1, gib},
		{sample.OfQoS(protocol.QoSBE), 20, 20 * gib}, {sample.OfQoS(protocol.QoSLS), 42, 42 * gib}, {sample.OfQoS(protocol.QoSLSR), 2, 2 * gib},
		{pod("web-server-1"), 2, 2 * gib}, {sample.OfContainer("web-server-1-id"), 2, 2 * gib},
		{pod("api"), 42, 42 * gib}, {sample.OfContainer("api-id"), 42, 42 * gib},
		{pod("spark"), 20, 20 * gib}, {sample.OfContainer("spark-id"), 20, 20 * gib},
	})
	return Input{
		Now: time.Date(2024, 1, 1, 12, 0, 0, 123, time.UTC), At: at, Window: w, Policy: slo.DefaultCollect(), NUMA: []int{0, 1},
		Capacity: Figures{128000, 128 * gib},
		Pods: podstest.Snapshot(t,
			object("web-server-1", `{"koordinator.sh/qosClass":"LSR"}`, "Guaranteed", "Running", `{"cpu":"4","memory":"4Gi"}`, `{"cpu":"4","memory":"4Gi"}`),
			object("api", `{}`, "Burstable", "Running", `{"cpu":"66","memory":"66Gi"}`, `{}`),
			object("spark", `{"koordinator.sh/qosClass":"BE","koordinator.sh/priority-class":"koord-batch"}`, "BestEffort", "Running",
				`{"kubernetes.io/batch-cpu":"30k","kubernetes.io/batch-memory":"30Gi"}`, `{"kubernetes.io/batch-cpu":"30k","kubernetes.io/batch-memory":"30Gi"}`),
			object("new", `{}`, "BestEffort", "Pending", `{}`, `{}`),
			object("done", `{}`, "Burstable", "Succeeded", `{"cpu":"9","memory":"9Gi"}`, `{"cpu":"9","memory":"9Gi"}`),
		),
	}
}

// text is a status as it is sent.
func text(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", " "); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestBuildTheDocumentsExample(t *testing.T) {
	t.Parallel()
	in := documents(t)
	in.Policy.Containers = true
	in.Policy.Windows = []time.Duration{5 * time.Minute, 30 * time.Minute} // the second one is not half covered
	in.Policy.Windows = append(in.Policy.Windows, 10*time.Minute)
	in.Reclaimable, in.Peak = &Figures{1500, gib}, &Figures{60000, 60 * gib}
	got := Build(&in)
	aggregated := func(cpu, memory string) map[string]slo.ResourceMap {
		m := slo.ResourceMap{Resources: res(cpu, memory)}
		return map[string]slo.ResourceMap{"avg": m, "p50": m, "p90": m, "p95": m, "p99": m}
	}
	updated := slo.Time{Time: time.Date(2024, 1, 1, 12, 0, 0, 0, time.UTC)}
	of := func(cpu, memory string) slo.ResourceMap { return slo.ResourceMap{Resources: res(cpu, memory)} }
	want := slo.NodeMetricStatus{
		UpdateTime: &updated,
		NodeMetric: &slo.NodeMetricInfo{
			NodeUsage: of("64", "64Gi"), SystemUsage: of("0", "0"),
			AggregatedNodeUsages: []slo.AggregatedUsage{
				{Duration: slo.Duration(5 * time.Minute), Usage: aggregated("64", "64Gi")}, {Duration: slo.Duration(10 * time.Minute), Usage: aggregated("64", "64Gi")},
			},
			AggregatedSystemUsages: []slo.AggregatedUsage{
				{Duration: slo.Duration(5 * time.Minute), Usage: aggregated("0", "0")}, {Duration: slo.Duration(10 * time.Minute), Usage: aggregated("0", "0")},
			},
			NUMAUsages: []slo.NUMAUsage{{NodeUsage: of("40", "40Gi"), SystemUsage: of("1", "1Gi")}},
			Usage:      res("64", "64Gi"), Request: res("100", "100Gi"), Limit: res("34", "34Gi"), // api has no limit
		},
		BEMetric: &slo.ClassMetric{Usage: res("20", "20Gi"), Request: res("30", "30Gi")},
		LSMetric: &slo.ClassMetric{Usage: res("44", "44Gi"), Request: res("70", "70Gi")},
		PodsMetric: []slo.PodMetric{
			{Name: "api", Namespace: "default", PodUsage: of("42", "42Gi"), Priority: "koord-prod", QoS: "LS"},
			{Name: "spark", Namespace: "default", PodUsage: of("20", "20Gi"), Priority: "koord-batch", QoS: "BE"},
			{Name: "web-server-1", Namespace: "default", PodUsage: of("2", "2Gi"), Priority: "koord-prod", QoS: "LSR"},
		},
		PodMetrics: []slo.PodContainers{
			{PodRef: slo.PodRef{Namespace: "default", Name: "api"}, Containers: []slo.ContainerMetric{{Name: "api", Usage: res("42", "42Gi"), Limit: slo.ResourceList{}}}},
			{PodRef: slo.PodRef{Namespace: "default", Name: "spark"}, Containers: []slo.ContainerMetric{{Name: "spark", Usage: res("20", "20Gi"), Limit: res("30", "30Gi")}}},
			{PodRef: slo.PodRef{Namespace: "default", Name: "web-server-1"}, Containers: []slo.ContainerMetric{{Name: "web-server-1", Usage: res("2", "2Gi"), Limit: res("4", "4Gi")}}},
		},
		ProdReclaimableMetric: &slo.Prediction{Resource: of("1500m", "1Gi")}, ProdPeakMetric: &slo.Prediction{Resource: of("60", "60Gi")},
	}
	if d := cmp.Diff(text(t, want), text(t, got)); d != "" {
		t.Error(d)
	}
	in.Policy.Containers = false
	if Build(&in).PodMetrics != nil {
		t.Error("containers are reported though nobody asks")
	}
}

// TestBuildPercentiles: of a use that changes, each percentile is another figure, none is the average, and node and system have their own. In five
// minutes the node uses 1 CPU for half of the time, for 40 % of it 2, for 5 % 4, for 4 % 8 and for three seconds 32; with memory, and of the system,
// it is another level that lasts longest.
func TestBuildPercentiles(t *testing.T) {
	t.Parallel()
	level := func(second int, levels [5]float64) float64 {
		rank := second * 7 % 300 // 7 and 300 have no divisor in common: each of 0..299 once, and no level in one piece
		for i, below := range [...]int{150, 270, 285, 297} {
			if rank < below {
				return levels[i]
			}
		}
		return levels[4]
	}
	w := window.New(window.Options{})
	at := hour
	for second := range 300 {
		at = hour + unit.Micros(second)*unit.Second
		for _, s := range []sample.Sample{
			{Subject: sample.OfNode(), Metric: sample.CPUUsage, Value: level(second, [5]float64{1, 2, 4, 8, 32})},
			{Subject: sample.OfNode(), Metric: sample.MemoryUsage, Value: gib * level(second, [5]float64{10, 20, 40, 50, 60})},
			{Subject: sample.OfSystem(), Metric: sample.CPUUsage, Value: level(second, [5]float64{0.5, 0.6, 0.7, 0.8, 0.9})},
			{Subject: sample.OfSystem(), Metric: sample.MemoryUsage, Value: gib * level(second, [5]float64{1, 3, 5, 7, 9})},
		} {
			s.At = at
			w.Append([]sample.Sample{s})
		}
	}
	in := documents(t)
	in.Window, in.At, in.Policy.Windows = w, at, []time.Duration{5 * time.Minute}
	got := Build(&in).NodeMetric
	of := func(cpu, memory string) slo.ResourceMap { return slo.ResourceMap{Resources: res(cpu, memory)} }
	want := map[string][]slo.AggregatedUsage{
		"node": {{Duration: slo.Duration(5 * time.Minute), Usage: map[string]slo.ResourceMap{
			// The averages: (150·1 + 120·2 + 15·4 + 12·8 + 3·32) / 300 = 2.14, and (150·10 + 120·20 + 15·40 + 12·50 + 3·60) / 300 = 17.6 GiB.
			"avg": of("2140m", "18454937Ki"), "p50": of("1", "10Gi"), "p90": of("2", "20Gi"), "p95": of("4", "40Gi"), "p99": of("8", "50Gi"),
		}}},
		"system": {{Duration: slo.Duration(5 * time.Minute), Usage: map[string]slo.ResourceMap{
			"avg": of("566m", "2432696Ki"), "p50": of("500m", "1Gi"), "p90": of("600m", "3Gi"), "p95": of("700m", "5Gi"), "p99": of("800m", "7Gi"),
		}}},
	}
	if d := cmp.Diff(text(t, want), text(t, map[string][]slo.AggregatedUsage{"node": got.AggregatedNodeUsages, "system": got.AggregatedSystemUsages})); d != "" {
		t.Error(d)
	}
}

// res is a list of CPU and memory.
func res(cpu, memory string) slo.ResourceList {
	return slo.ResourceList{"cpu": quantity(cpu), "memory": quantity(memory)}
}

func TestBuildMemoryPolicies(t *testing.T) {
	t.Parallel()
	pod := sample.OfPod("api-uid")
	figures := []figure{
		{sample.OfNode(), 10, 10 * gib}, {sample.OfSystem(), 1, gib}, {sample.OfQoS(protocol.QoSLS), 6, 6 * gib}, {sample.OfQoS(protocol.QoSBE), 0, 0}, {pod, 6, 6 * gib},
		{sample.OfHostApp("agent"), 3, 3 * gib},
	}
	for name, c := range map[string]struct {
		policy                 string
		metric                 []sample.Metric
		node, ls, system, host string
	}{
		"without page cache":             {slo.MemoryWithoutPageCache, nil, "10Gi", "6Gi", "1Gi", "3Gi"},
		"with page cache":                {slo.MemoryWithPageCache, []sample.Metric{sample.MemoryWithPageCache}, "20Gi", "12Gi", "2Gi", "6Gi"},
		"hot pages":                      {slo.MemoryWithHotPageCache, []sample.Metric{sample.MemoryWithHotPages}, "20Gi", "12Gi", "2Gi", "6Gi"},
		"hot pages, kernel without them": {slo.MemoryWithHotPageCache, nil, "10Gi", "6Gi", "1Gi", "3Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, at := filled(120, figures, c.metric...)
			in := Input{At: at, Window: w, Policy: slo.DefaultCollect(), HostApps: []HostApp{{"agent", "koord-prod", "LS"}}, Pods: podstest.Snapshot(t, object("api", `{}`, "Burstable", "Running", `{}`, `{}`))}
			in.Policy.Memory = c.policy
			got := Build(&in)
			have := []any{got.NodeMetric.Usage["memory"], got.LSMetric.Usage["memory"], got.NodeMetric.SystemUsage.Resources["memory"], got.HostApplicationMetric[0].Usage.Resources["memory"]}
			if d := cmp.Diff(fmt.Sprint(c.node, c.ls, c.system, c.host), fmt.Sprint(have...)); d != "" {
				t.Error(d)
			}
		})
	}
}

// A node that has just started says what it knows, and invents nothing.
func TestBuildWithoutSamples(t *testing.T) {
	t.Parallel()
	in := Input{Now: time.Unix(1, 0), At: hour, Window: window.New(window.Options{}), Policy: slo.DefaultCollect(), Pods: podstest.Snapshot(t,
		object("api", `{}`, "Burstable", "Running", `{"cpu":"1","memory":"1Gi"}`, `{}`))}
	want := `{"updateTime":"1970-01-01T00:00:01Z","nodeMetric":{"request":{"cpu":"1","memory":"1Gi"}}}`
	if raw, err := json.Marshal(Build(&in)); err != nil || string(raw) != want {
		t.Errorf("%s %v, want %s", raw, err, want)
	}
}

// The sums hold whatever the pods (seed-manifests.md C2): node = BE + LS + host applications + system.
func TestTotalsAddUp(t *testing.T) {
	t.Parallel()
	in := documents(t)
	m := Measure(&in)
	if m.Node != m.BE.plus(m.LS).plus(m.System) || m.NodeRequest != m.BERequest.plus(m.LSRequest) || m.Pods != 4 {
		t.Errorf("%+v", m)
	}
}

func TestNews(t *testing.T) {
	t.Parallel()
	capacity := Figures{32000, 64 * gib}
	base := Totals{Known: true, Node: Figures{8000, 8 * gib}, BE: Figures{1000, gib}, NodeRequest: Figures{10000, 10 * gib}}
	for name, c := range map[string]struct {
		edit func(*Totals)
		want bool
	}{
		"nothing":                 {func(*Totals) {}, false},
		"8 to 8.6 CPUs":           {func(t *Totals) { t.Node.CPU = 8600 }, false},
		"8 to 9 CPUs":             {func(t *Totals) { t.Node.CPU = 9000 }, true},
		"8 to 7 CPUs":             {func(t *Totals) { t.Node.CPU = 7000 }, true},
		"BE 1 to 1.5 CPUs":        {func(t *Totals) { t.BE.CPU = 1500 }, false},
		"BE 1 to 1.7 CPUs":        {func(t *Totals) { t.BE.CPU = 1700 }, true},
		"memory, little":          {func(t *Totals) { t.BE.Memory = gib * 2 }, false},
		"memory":                  {func(t *Totals) { t.BE.Memory = gib * 5 / 2 }, true},
		"requests":                {func(t *Totals) { t.NodeRequest.CPU = 13000 }, true},
		"prediction":              {func(t *Totals) { t.Reclaimable.CPU = 4000 }, true},
		"not measured any more":   {func(t *Totals) { t.Known = false }, true},
		"a pod without resources": {func(t *Totals) { t.Pods++ }, false},
		"somebody was evicted":    {func(t *Totals) { t.Evicted++ }, true},
		"somebody is held":        {func(t *Totals) { t.Held = "uid " }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fresh := base
			c.edit(&fresh)
			if got := News(&base, &fresh, capacity, DefaultThreshold); got != c.want {
				t.Errorf("news %v", got)
			}
		})
	}
	small := Totals{Known: true, Node: Figures{100, 100 << 20}}
	twice := Totals{Known: true, Node: Figures{290, 300 << 20}}
	if News(&small, &twice, Figures{}, DefaultThreshold) {
		t.Error("an idle node of unknown size has news")
	}
}

// TestEvictionsAreReported: what the agent evicted of late, and nothing where it has not.
func TestEvictionsAreReported(t *testing.T) {
	t.Parallel()
	in := documents(t)
	if got := Build(&in); got.Evictions != nil {
		t.Errorf("evictions %+v of a node that has evicted nobody", got.Evictions)
	}
	in.Evicted = 3
	if got := Build(&in); got.Evictions == nil || got.Evictions.LastHour != 3 || Measure(&in).Evicted != 3 {
		t.Errorf("evictions %+v, want 3", got.Evictions)
	}
}

// BenchmarkBuild makes a report of 80 pods with 240 containers.
func BenchmarkBuild(b *testing.B) {
	var list []*pods.Pod
	figures := []figure{{sample.OfNode(), 64, 64 * gib}, {sample.OfSystem(), 1, gib}}
	for i := range 80 {
		p := &pods.Pod{UID: "uid-" + string(rune('a'+i)), Namespace: "n", Name: "p"}
		for c := range 3 {
			id := p.UID + string(rune('0'+c))
			p.Containers = append(p.Containers, pods.Container{Name: "c", ID: id})
			figures = append(figures, figure{sample.OfContainer(id), 0.1, gib})
		}
		figures = append(figures, figure{sample.OfPod(p.UID), 0.3, 3 * gib})
		list = append(list, p)
	}
	w, at := filled(600, figures)
	in := Input{At: at, Window: w, Policy: slo.DefaultCollect(), Pods: &pods.Snapshot{Pods: list}}
	in.Policy.Containers = true
	b.ReportAllocs()
	for b.Loop() {
		if out := Build(&in); len(out.PodMetrics) != 80 {
			b.Fatal(len(out.PodMetrics))
		}
	}
}
