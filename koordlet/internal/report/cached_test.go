// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods/podstest"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// TestPageCacheOfPodsThatComeAndGo: in five minutes a job holds 20 GiB for the first of them and ends, and a pod of best effort comes for the last
// 30 s with 10 GiB. With page cache, of which only pods are measured, classes and system are what they are without, where each second's sums are: the
// job was a fifth of the time there.
func TestPageCacheOfPodsThatComeAndGo(t *testing.T) {
	t.Parallel()
	w := window.New(window.Options{})
	at := hour
	for second := range 300 {
		at = hour + unit.Micros(second)*unit.Second
		put := func(s sample.Subject, held float64, metrics ...sample.Metric) {
			batch := []sample.Sample{{Subject: s, Metric: sample.CPUUsage, At: at}}
			for _, m := range metrics {
				batch = append(batch, sample.Sample{Subject: s, Metric: m, Value: held * gib, At: at})
			}
			w.Append(batch)
		}
		const both, alone = sample.MemoryWithPageCache, sample.MemoryUsage
		job, fresh := 0.0, 0.0
		put(sample.OfPod("api-uid"), 6, alone, both)
		put(sample.OfHostApp("agent"), 3, alone, both)
		if second < 60 {
			job = 20
			put(sample.OfPod("job-uid"), job, alone, both)
		}
		if second >= 270 {
			fresh = 10
			put(sample.OfPod("fresh-uid"), fresh, alone, both)
		}
		put(sample.OfNode(), 6+3+2+job+fresh, alone, both)
		put(sample.OfSystem(), 2, alone)
		put(sample.OfQoS(protocol.QoSLS), 6+job, alone)
		put(sample.OfQoS(protocol.QoSBE), fresh, alone)
	}
	in := Input{
		At: at, Window: w, Policy: slo.DefaultCollect(), HostApps: []HostApp{{"agent", "koord-prod", "LS"}},
		Pods: podstest.Snapshot(t,
			object("api", `{}`, "Burstable", "Running", `{}`, `{}`), object("job", `{}`, "Burstable", "Succeeded", `{}`, `{}`),
			object("fresh", `{}`, "BestEffort", "Running", `{}`, `{}`)),
	}
	want := Measure(&in)
	if want.Node.Memory != 16*gib || want.LS.Memory != 10*gib || want.BE.Memory != gib || want.System.Memory != 2*gib {
		t.Fatalf("without page cache: %+v", want)
	}
	in.Policy.Memory = slo.MemoryWithPageCache
	if d := cmp.Diff(want, Measure(&in)); d != "" {
		t.Errorf("without page cache (-), with (+):\n%s", d)
	}
	// The pods that are told are those that run, each with the average of its own time.
	told := map[string]string{}
	for _, p := range Build(&in).PodsMetric {
		told[p.Name] = string(p.PodUsage.Resources["memory"])
	}
	if d := cmp.Diff(map[string]string{"api": "6Gi", "fresh": "10Gi"}, told); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
