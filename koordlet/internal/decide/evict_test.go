// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods/podstest"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

// podOf is a pod that runs; batch is its request of batch-cpu, more is of its metadata.
func podOf(uid string, priority int, batch int, more string) string {
	return fmt.Sprintf(`{"metadata":{"uid":%q,"namespace":"default","name":%q%s},"spec":{"priority":%d,"containers":[{"name":"app","resources":{"requests":`+
		`{"kubernetes.io/batch-cpu":"%d"}}}]},"status":{"phase":"Running","qosClass":"BestEffort"}}`, uid, uid, more, priority, batch)
}

const labelBE = `,"labels":{"koordinator.sh/qosClass":"BE"}`

// history gives a subject a figure for each of the last 59 seconds before the one that counts as now.
func history(w *window.Memory, s sample.Subject, m sample.Metric, value float64) {
	var batch []sample.Sample
	for i := range unit.Micros(59) {
		batch = append(batch, sample.Sample{Subject: s, Metric: m, Value: value, At: now - (60-i)*unit.Second + unit.Second/2})
	}
	w.Append(batch)
}

func put(w *window.Memory, s sample.Subject, m sample.Metric, value float64) {
	w.Append([]sample.Sample{{Subject: s, Metric: m, Value: value, At: now - unit.Second/2}})
}

func victims(out *decide.Outcome) string {
	var all []string
	for _, e := range out.Evict.Evictions {
		all = append(all, e.Pod)
	}
	return strings.Join(all, " ")
}

func decision(out *decide.Outcome, f evict.Feature) evict.Decision {
	for _, d := range out.Evict.Decisions {
		if d.Feature == f {
			return d
		}
	}
	return evict.Decision{}
}

// crowded is the worked example with two pods of BE that request and use CPUs.
func crowded(t *testing.T, change func(*strategy.ResourceThresholdStrategy)) (*decide.Facts, *window.Memory) {
	t.Helper()
	f, w := facts(strategy.SuppressCFSQuota)
	f.EvictFeatures = evict.All
	f.Members = append([]engine.Member{f.Members[0], member("be2", protocol.QoSBE, protocol.KubeBestEffort)}, f.Members[1])
	f.Pods = podstest.Snapshot(t, podOf("be", 5500, 10000, labelBE), podOf("be2", 5500, 10000, labelBE))
	change(f.View.Strategy.ResourceUsedThresholdWithBE)
	be := sample.OfQoS(protocol.QoSBE)
	history(w, be, sample.CPUUsage, 4.8)
	put(w, be, sample.CPUUsage, 4.8)
	return f, w
}

// TestEvictByPressure is A7 from what the collector emits: the class's stall over the window.
func TestEvictByPressure(t *testing.T) {
	t.Parallel()
	be := sample.OfQoS(protocol.QoSBE)
	for name, tc := range map[string]struct {
		stall      float64
		noPressure bool
		want       string
		reason     string
		limited    bool
	}{
		"86":                       {stall: 860_000, want: "be2", reason: "BE pods wait for a CPU 86% of the time on average, above 85%"},
		"84":                       {stall: 840_000, reason: "84% of the time on average, not above 85%"},
		"a kernel that has none":   {noPressure: true, reason: "satisfaction stands in", limited: true},
		"told against all hope":    {stall: 860_000, noPressure: true, want: "be2", reason: "86% of the time"},
		"not yet, on one that has": {reason: "no decision: CPU pressure"},
	} {
		f, w := crowded(t, func(t *strategy.ResourceThresholdStrategy) { t.CPUEvictPSIThresholdPercent = new(int64(85)) })
		f.NoPressure = tc.noPressure
		if tc.stall > 0 {
			history(w, be, sample.StallCPUSome, tc.stall)
			put(w, be, sample.StallCPUSome, tc.stall)
		}
		// The pod that has used most over the window goes, not the one that uses most just now.
		history(w, sample.OfPod("be"), sample.CPUUsage, 0.5)
		history(w, sample.OfPod("be2"), sample.CPUUsage, 4)
		put(w, sample.OfPod("be2"), sample.CPUUsage, 0.1)
		measure(w, now-unit.Second/2, 14, 8, 4.7)
		_, out := decide.Step(decide.State{}, f)
		d := decision(&out, evict.BECPUEvict)
		if victims(&out) != tc.want || !strings.Contains(d.Reason, tc.reason) || (d.Limited != "") != tc.limited {
			t.Errorf("%s: %q, %+v", name, victims(&out), d)
		}
	}
}

// TestEvictOnAverageAndNow: what the window still knows of victims that are gone, and what finished pods have requested, evicts nobody.
func TestEvictOnAverageAndNow(t *testing.T) {
	t.Parallel()
	be := sample.OfQoS(protocol.QoSBE)
	for name, tc := range map[string]struct {
		now  float64
		want string
	}{"still": {now: 860_000, want: "be2"}, "no longer": {now: 100_000}} {
		f, w := crowded(t, func(t *strategy.ResourceThresholdStrategy) { t.CPUEvictPSIThresholdPercent = new(int64(70)) })
		history(w, be, sample.StallCPUSome, 860_000)
		put(w, be, sample.StallCPUSome, tc.now)
		history(w, sample.OfPod("be"), sample.CPUUsage, 0.5)
		history(w, sample.OfPod("be2"), sample.CPUUsage, 4)
		measure(w, now-unit.Second/2, 14, 8, 4.7)
		if _, out := decide.Step(decide.State{}, f); victims(&out) != tc.want {
			t.Errorf("pressure, %s: %q, %+v", name, victims(&out), decision(&out, evict.BECPUEvict))
		}
	}
	for name, tc := range map[string]struct {
		now  float64
		want string
	}{"still": {30, "be2"}, "no longer": {14, ""}} {
		f, w := crowded(t, func(t *strategy.ResourceThresholdStrategy) {
			t.CPUEvictThresholdPercent, t.CPUEvictLowerPercent, t.EvictEnabledPriorityThreshold = new(int64(85)), new(int64(83)), new(int32(9999))
		})
		agreed := strings.Replace(labelBE, `{"koord`, `{"koordinator.sh/eviction-enabled":"true","koord`, 1)
		f.Pods = podstest.Snapshot(t, podOf("be", 5500, 10000, agreed), podOf("be2", 5500, 10000, agreed))
		history(w, sample.OfNode(), sample.CPUUsage, 30)
		history(w, sample.OfPod("be"), sample.CPUUsage, 0.5)
		history(w, sample.OfPod("be2"), sample.CPUUsage, 4)
		measure(w, now-unit.Second/2, tc.now, 8, 0.5)
		if _, out := decide.Step(decide.State{}, f); victims(&out) != tc.want {
			t.Errorf("node, %s: %q, %+v", name, victims(&out), decision(&out, evict.CPUEvict))
		}
	}
	for phase, want := range map[string]float64{"Running": 20, "Succeeded": 10} {
		f, w := crowded(t, func(*strategy.ResourceThresholdStrategy) {})
		f.Pods = podstest.Snapshot(t, podOf("be", 5500, 10000, labelBE), strings.Replace(podOf("be2", 5500, 10000, labelBE), "Running", phase, 1))
		measure(w, now-unit.Second/2, 14, 8, 0.5)
		_, out := decide.Step(decide.State{}, f)
		got := -1.0
		for _, s := range out.Samples {
			if s.Metric == sample.CPURequest {
				got = s.Value
			}
		}
		if got != want {
			t.Errorf("%s: BE requests %.0f CPUs, want %.0f", phase, got, want)
		}
	}
}

// TestFreeListsOfCPUs: they are looked at when the node seems to use too much; what they have neither evicts nor is a danger.
func TestFreeListsOfCPUs(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for name, tc := range map[string]struct {
		used, free float64
		seen       float64 // of the lists, when they were sampled
		enable     bool
		asks       bool
		want       string
		danger     bool
	}{
		"calm":                {used: 70, enable: true},
		"above":               {used: 71, enable: true, asks: true, want: "be2"},
		"above by the lists":  {used: 72, free: 2, enable: true, asks: true},
		"danger":              {used: 98, enable: true, asks: true, want: "be2 be", danger: true},
		"danger by the lists": {used: 98, free: 30, enable: true, asks: true},
		"calm by the sample":  {used: 69, seen: 20, enable: true},
		"above by the sample": {used: 71, free: 1, seen: 20, enable: true, asks: true},
		"the lists have gone": {used: 71, seen: 20, enable: true, asks: true, want: "be2"},
		"off":                 {used: 98},
	} {
		f, w := crowded(t, func(t *strategy.ResourceThresholdStrategy) {
			t.Enable, t.MemoryEvictThresholdPercent, t.MemoryEvictLowerPercent = &tc.enable, new(int64(70)), new(int64(70))
		})
		put(w, sample.OfNode(), sample.MemoryUsage, (tc.used-tc.seen)*gib)
		put(w, sample.OfNode(), sample.MemoryFreeLists, tc.seen*gib)
		put(w, sample.OfPod("be"), sample.MemoryUsage, 1*gib)
		put(w, sample.OfPod("be2"), sample.MemoryUsage, 2*gib)
		if asks := decide.MemoryOver(f); asks != tc.asks {
			t.Errorf("%s: asks %v", name, asks)
		}
		f.PerCPU = unit.Bytes(tc.free * gib)
		_, out := decide.Step(decide.State{}, f)
		if victims(&out) != tc.want || (out.Evict.Danger != "") != tc.danger {
			t.Errorf("%s: %q, danger %q, %+v", name, victims(&out), out.Evict.Danger, decision(&out, evict.BEMemoryEvict))
		}
	}
}

// TestSatisfactionIsAnAverage: a tier that had its CPUs for 59 s and loses them for one is not starved; one that has lacked them
// all the time is.
func TestSatisfactionIsAnAverage(t *testing.T) {
	t.Parallel()
	be := sample.OfQoS(protocol.QoSBE)
	for name, tc := range map[string]struct {
		limit float64
		want  int
	}{"a dip of a second": {20, 0}, "starved": {5, 2}} {
		f, w := crowded(t, func(t *strategy.ResourceThresholdStrategy) {
			t.CPUEvictBESatisfactionLowerPercent, t.CPUEvictBESatisfactionUpperPercent = new(int64(60)), new(int64(80))
		})
		history(w, be, sample.CPULimit, tc.limit)
		history(w, be, sample.CPURequest, 20)
		measure(w, now-unit.Second/2, 21, 14, 5)
		s, out := decide.Step(decide.State{}, f) // 20.8 − 14 − 2 = 4.8 CPUs are left
		if len(out.Evict.Evictions) != tc.want {
			t.Errorf("%s: %q, %s", name, victims(&out), decision(&out, evict.BECPUEvict).Reason)
		}
		if len(out.Samples) != 2 || out.Samples[0].Metric != sample.CPULimit || out.Samples[0].Value != float64(out.Suppress.Quota)/100_000 ||
			out.Samples[1].Value != 20 || out.Samples[1].Subject != be {
			t.Errorf("%s: %+v beside a quota of %d", name, out.Samples, out.Suppress.Quota)
		}
		f.Urgent = true
		if _, out = decide.Step(s, f); len(out.Samples) != 2 {
			t.Errorf("%s, between the ticks: %+v", name, out.Samples)
		}
	}
}

// TestTwoSandboxes: a pod whose old sandbox still stands beside the new one counts once.
func TestTwoSandboxes(t *testing.T) {
	t.Parallel()
	over := func(t *strategy.ResourceThresholdStrategy) { t.MemoryEvictThresholdPercent = new(int64(50)) }
	step := func(twice bool) decide.Outcome {
		f, w := crowded(t, over)
		if twice {
			again := []engine.Member{f.Members[0], f.Members[0], f.Members[1], f.Members[1], f.Members[2], f.Members[2]}
			f.Members = again
		}
		put(w, sample.OfNode(), sample.MemoryUsage, 70*gib)
		put(w, sample.OfPod("be"), sample.MemoryUsage, 5*gib)
		put(w, sample.OfPod("be2"), sample.MemoryUsage, 4*gib)
		measure(w, now-unit.Second/2, 14, 8, 3)
		_, out := decide.Step(decide.State{}, f)
		return out
	}
	once, twice := step(false), step(true)
	if once.Suppress.Quota != twice.Suppress.Quota || once.Suppress.Quota <= 0 {
		t.Errorf("quota %d, with two sandboxes %d", once.Suppress.Quota, twice.Suppress.Quota)
	}
	if victims(&once) != "be be2" || victims(&twice) != "be be2" {
		t.Errorf("%q, with two sandboxes %q", victims(&once), victims(&twice))
	}
	if twice.Samples[1].Value != 20 {
		t.Errorf("requests %v", twice.Samples[1].Value)
	}
}

// TestWhoIsEvicted: the label, or a class that is lent resources; M2, whose owner has asked for more than anybody, never.
func TestWhoIsEvicted(t *testing.T) {
	t.Parallel()
	f, w := facts(strategy.SuppressCPUSet)
	f.EvictFeatures = evict.All
	f.View.Strategy.ResourceUsedThresholdWithBE.MemoryEvictThresholdPercent = new(int64(50))
	f.Members = nil
	var objects []string
	for uid, p := range map[string]struct {
		priority int
		more     string
	}{"labelled": {0, labelBE}, "m16": {5000, ""}, "m2": {100000, ""}, "nothing": {0, ""}, "critical": {2000001000, labelBE}, "prod": {9500, labelBE}} {
		f.Members = append(f.Members, member(uid, protocol.QoSBE, protocol.KubeBestEffort))
		objects = append(objects, podOf(uid, p.priority, 0, p.more))
		put(w, sample.OfPod(uid), sample.MemoryUsage, gib)
	}
	f.Pods = podstest.Snapshot(t, objects...)
	put(w, sample.OfNode(), sample.MemoryUsage, 98*gib)
	_, out := decide.Step(decide.State{}, f)
	if got := victims(&out); got != "labelled m16" && got != "m16 labelled" || out.Evict.Danger == "" {
		t.Errorf("%q, danger %q", got, out.Evict.Danger)
	}
	f.Held = map[string]evict.Held{"labelled": evict.ByFailure}
	if _, out = decide.Step(decide.State{}, f); victims(&out) != "m16" {
		t.Errorf("one has failed: %q", victims(&out))
	}
	f.View.Strategy.ResourceUsedThresholdWithBE.Enable = new(false)
	if _, out = decide.Step(decide.State{}, f); victims(&out) != "" || out.Evict.Danger != "" {
		t.Errorf("not enabled: %q, danger %q", victims(&out), out.Evict.Danger)
	}
}

// TestBookedResourcesOfTheBand: against what the node lends counts what a pod requests of that, in its band. Plain CPU and memory are the node's own.
func TestBookedResourcesOfTheBand(t *testing.T) {
	t.Parallel()
	agreed := strings.Replace(labelBE, `{"koord`, `{"koordinator.sh/eviction-enabled":"true","koord`, 1)
	for name, tc := range map[string]struct {
		priority int
		requests string
		want     string
	}{
		"batch-cpu":                 {5400, `"kubernetes.io/batch-cpu":"10000"`, "be2"},
		"batch-cpu, no band":        {0, `"kubernetes.io/batch-cpu":"10000"`, "be2"},
		"plain CPU":                 {5400, `"cpu":"10"`, ""},
		"plain CPU, no band":        {0, `"cpu":"10"`, ""},
		"batch-memory":              {5400, `"kubernetes.io/batch-memory":"20Gi"`, "be2"},
		"plain memory":              {5400, `"memory":"20Gi"`, ""},
		"mid-cpu":                   {7500, `"kubernetes.io/mid-cpu":"20000"`, "be2"},
		"mid-memory":                {7500, `"kubernetes.io/mid-memory":"20Gi"`, "be2"},
		"batch-cpu in the mid band": {7500, `"kubernetes.io/batch-cpu":"20000"`, ""},
	} {
		f, _ := crowded(t, func(t *strategy.ResourceThresholdStrategy) {
			t.CPUAllocatableEvictThresholdPercent, t.MemoryAllocatableEvictThresholdPercent = new(int64(100)), new(int64(100))
			t.AllocatableEvictPriorityThreshold = new(int32(7999))
		})
		f.Node.Allocatable = amount.Amounts{CPU: 31000, BatchCPU: 12000, MidCPU: 12000, BatchMemory: 12 << 30, MidMemory: 12 << 30}
		booker := strings.Replace(podOf("be2", tc.priority, 0, agreed), `"kubernetes.io/batch-cpu":"0"`, tc.requests, 1)
		f.Pods = podstest.Snapshot(t, podOf("be", 5500, 10000, agreed), booker)
		if _, out := decide.Step(decide.State{}, f); victims(&out) != tc.want {
			t.Errorf("%s: %q, want %q: %+v", name, victims(&out), tc.want, out.Evict.Decisions)
		}
	}
}

// The annotation eviction-priority decides before what a pod uses.
func TestEvictionPriorityIsRead(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for annotation, want := range map[string]string{"": "be2", `,"annotations":{"koordinator.sh/eviction-priority":"-1"}`: "be"} {
		f, w := crowded(t, func(t *strategy.ResourceThresholdStrategy) {
			t.Enable, t.MemoryEvictThresholdPercent, t.MemoryEvictLowerPercent = new(true), new(int64(70)), new(int64(70))
		})
		f.Pods = podstest.Snapshot(t, podOf("be", 5500, 10000, labelBE+annotation), podOf("be2", 5500, 10000, labelBE))
		put(w, sample.OfNode(), sample.MemoryUsage, 71*gib)
		put(w, sample.OfPod("be"), sample.MemoryUsage, 1*gib)
		put(w, sample.OfPod("be2"), sample.MemoryUsage, 2*gib)
		if _, out := decide.Step(decide.State{}, f); victims(&out) != want {
			t.Errorf("%q: %q, %+v", annotation, victims(&out), decision(&out, evict.BEMemoryEvict))
		}
	}
}
