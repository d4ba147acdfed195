// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"errors"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// formulasConfig is what holds for every node of the table but for what its annotation says. Small differences are written too, so that
// the node says what the formula says.
const formulasConfig = `{"enable": true, "cpuReclaimThresholdPercent": 65, "memoryReclaimThresholdPercent": 65,
  "resourceDiffThreshold": 0.001, "updateTimeThresholdSeconds": 1}`

// Strategies of several rows.
const (
	reclaim7080  = `"cpuReclaimThresholdPercent": 70, "memoryReclaimThresholdPercent": 80`
	reclaimMore  = `"cpuReclaimThresholdPercent": 150, "memoryReclaimThresholdPercent": 120`
	byRequest    = `"memoryCalculatePolicy": "request"`
	byLargerCPU  = `"cpuCalculatePolicy": "maxUsageRequest"`
	byLarger     = byLargerCPU + `, "memoryCalculatePolicy": "maxUsageRequest"`
	midBounded   = `"midCPUThresholdPercent": 10, "midMemoryThresholdPercent": 20, "midUnallocatedPercent": 10`
	midUnclaimed = `"midUnallocatedPercent": 10`
)

// origin25 is what the annotation says of 25 CPUs and 33 GB.
const origin25 = `{"resources":{"kubernetes.io/batch-cpu":"25000","kubernetes.io/batch-memory":"33000000000"}}`

// formula is a node, what it says of itself, and what is lent out of it then.
type formula struct {
	name     string
	scene    func() scene
	strategy string       // fields of its annotation
	change   func(*scene) // nil for the scene as it is
	// lends is batch-cpu, batch-memory, mid-cpu and mid-memory, "" for nothing; zones are batch-cpu and batch-memory of each, in the order
	// of the scene's; origin is what the annotation says of batch before others' bookings, where it differs.
	lends, zones, origin string
}

// formulas: the numbers of rows marked with a U are Koordinator's own (pkg/slo-controller/noderesource/plugins, plugin_test.go of
// batchresource and midresource); beside each row stands how it comes about, CPUs first, then memory in GB. Where nothing is said of mid
// it is what production leaves, 10 and 15, of which the node has more idle.
var formulas = []formula{
	// U: 100 × 65 % − 7 − (11 + 22); 120 × 65 % − 12 − (11 + 22).
	{name: "usage", scene: plain, lends: "25k 33G 10k 15G"},
	// U: 70 − 7 − 33; 96 − 0 − (20 + 40).
	{name: "request", scene: plain, strategy: reclaim7080 + "," + byRequest, lends: "30k 36G 10k 15G"},
	// U: 96 − 5 − 60. What the system uses is in no formula by request.
	{name: "request-reserved", scene: plain, strategy: reclaim7080 + "," + byRequest, change: func(s *scene) {
		s.says(protocol.AnnotationNodeReservation, `{"resources": {"memory": "5G"}}`)
	}, lends: "30k 31G 10k 15G"},
	// U: 70 − 10 − 33; 96 − 20 − 60: of the three what the kubelet keeps is most.
	{name: "request-kubelet", scene: plain, strategy: reclaim7080 + "," + byRequest, change: func(s *scene) {
		s.allocatable = load{90, 100}
		s.says(protocol.AnnotationNodeReservation, `{"resources": {"cpu": "2", "memory": "5G"}}`)
	}, lends: "27k 16G 10k 15G"},
	// U: 70 − 7 − (max(20, 11) + max(20, 22)); by request as above.
	{name: "larger-cpu", scene: plain, strategy: reclaim7080 + "," + byLargerCPU + "," + byRequest, lends: "21k 36G 10k 15G"},
	// U, each in a case of its own: 150 − 7 − 42; 144 − 12 − (max(20, 11) + max(40, 22)).
	{name: "larger", scene: plain, strategy: reclaimMore + "," + byLarger, lends: "101k 72G 10k 15G"},
	// 100 × 100 %; 120 × 50 %.
	{name: "bounded", scene: plain, strategy: reclaimMore + "," + byLarger + `, "batchCPUThresholdPercent": 100, "batchMemoryThresholdPercent": 50`,
		lends: "100k 60G 10k 15G"},
	// A bound of nothing is not the same as none.
	{name: "bounded-to-nothing", scene: plain, strategy: `"batchCPUThresholdPercent": 0`, lends: "0 33G 10k 15G"},
	// 30 − 40 and 36 − 45 are not below nothing.
	{name: "nothing-left", scene: plain, strategy: `"cpuReclaimThresholdPercent": 30, "memoryReclaimThresholdPercent": 30`, lends: "0 0 10k 15G"},
	{name: "off", scene: plain, strategy: `"enable": false`},

	// U: 65 − max(7, 20) − 33; 78 − max(12, 20) − 33.
	{name: "reserved", scene: plain, change: func(s *scene) {
		s.says(protocol.AnnotationNodeReservation, `{"resources": {"cpu": "20", "memory": "20G"}}`)
	}, lends: "12k 25G 10k 15G"},
	// U: named CPUs go before an amount: 65 − max(7, 10) − 33.
	{name: "reserved-cpus", scene: plain, change: func(s *scene) {
		s.says(protocol.AnnotationNodeReservation, `{"reservedCPUs": "0-9", "resources": {"cpu": "20"}}`)
	}, lends: "22k 33G 10k 15G"},
	// U: 65 − max(7, 2) − 33; 78 − max(12, 5) − 33.
	{name: "reserved-less", scene: plain, change: func(s *scene) {
		s.says(protocol.AnnotationNodeReservation, `{"resources": {"cpu": "2", "memory": "5G"}}`)
	}, lends: "25k 33G 10k 15G"},
	// The kubelet keeps 10 of the 100 CPUs, whatever a node that is told larger than it is has now: 65 − max(7, 10) − 33.
	{name: "amplified", scene: plain, change: func(s *scene) {
		s.allocatable = load{135, 120}
		s.says(protocol.AnnotationRawAllocatable, `{"cpu": "90"}`)
	}, lends: "22k 33G 10k 15G"},

	// U, each in a case of its own: production's, mid's and those of no class go before batch, batch's do not: 65 − (4 + 1 + 1 + 1) − 33;
	// 78 − (6 + 2 + 2 + 2) − 33.
	{name: "host-applications", scene: plain, change: func(s *scene) {
		s.system, s.hosts = load{4, 6}, map[string]load{"koord-prod": {1, 2}, "koord-mid": {1, 2}, "": {1, 2}, "koord-batch": {3, 5}, "koord-free": {1, 1}}
	}, lends: "25k 33G 10k 15G"},
	// Others have 10 and 10, for 25 − 10 and 33 − 10; of koord-mid nobody books batch resources.
	{name: "third-party", scene: plain, change: func(s *scene) {
		s.says(protocol.AnnotationThirdPartyAllocs, `{"allocations": [
			{"name": "hadoop-yarn", "priority": "koord-batch", "resources": {"kubernetes.io/batch-cpu": "6000", "kubernetes.io/batch-memory": "10G"}},
			{"name": "other", "priority": "koord-batch", "resources": {"kubernetes.io/batch-cpu": "4000"}},
			{"name": "third", "priority": "koord-mid", "resources": {"kubernetes.io/batch-cpu": "9000"}}]}`)
	}, lends: "15k 23G 10k 15G", origin: origin25},
	// 25 − 30 is not below nothing.
	{name: "third-party-all", scene: plain, change: func(s *scene) {
		s.says(protocol.AnnotationThirdPartyAllocs,
			`{"allocations": [{"name": "hadoop-yarn", "priority": "koord-batch", "resources": {"kubernetes.io/batch-cpu": "30000"}}]}`)
	}, lends: "0 33G 10k 15G", origin: origin25},

	// U: pods of every class: 65 − 7 − (5 + 6 + 22); 78 − 12 − (5 + 6 + 22).
	{name: "classes", scene: classes, lends: "25k 33G 10k 15G"},
	// U: of an LSE pod all that it asks for: 65 − 7 − (10 + 6 + 22).
	{name: "lse", scene: classes, change: func(s *scene) { s.pods[0].qos = "LSE" }, lends: "20k 33G 10k 15G"},
	// A mid pod asks in mid resources: 96 − (10 + 10 + 40). Upstream misses it (§9.1, 2).
	{name: "mid-request", scene: classes, strategy: reclaim7080 + "," + byRequest, lends: "30k 36G 10k 15G"},
	// 65 − 7 − (5 + 6 + 20); 78 − 12 − (5 + 6 + 40).
	{name: "mid-unmeasured", scene: classes, change: func(s *scene) { s.pods[3].uses = load{} }, lends: "27k 15G 10k 15G"},
	// 65 − 7 − (11 + 20); 78 − 12 − (11 + 40).
	{name: "unmeasured", scene: plain, change: func(s *scene) { s.pods[2].uses = load{} }, lends: "27k 15G 10k 15G"},
	// 70 − 7 − (20 + 20); 96 − 12 − (20 + 40). Upstream misses it (§9.1, 1).
	{name: "unmeasured-larger", scene: plain, strategy: reclaim7080 + "," + byLarger, change: func(s *scene) { s.pods[2].uses = load{} },
		lends: "23k 24G 10k 15G"},
	// A batch pod without a report takes nothing from what batch pods may have together.
	{name: "unmeasured-batch", scene: classes, change: func(s *scene) { s.pods[2].uses = load{} }, lends: "25k 33G 10k 15G"},
	// A pod that was there when the report was made: 65 − 7 − 33 − 2; 78 − 12 − 33 − 4. It has asked for nothing that is known.
	{name: "gone", scene: plain, change: func(s *scene) {
		s.pods = append(s.pods, guest{class: "koord-prod", qos: "LS", uses: load{2, 4}, gone: true})
	},
		lends: "23k 29G 10k 15G"},
	{name: "gone-batch", scene: plain, change: func(s *scene) { s.pods[1].gone = true }, lends: "25k 33G 10k 15G"},
	{name: "finished", scene: plain, change: func(s *scene) {
		s.pods = append(s.pods, guest{class: "koord-prod", qos: "LS", asks: load{10, 10}, finished: true})
	}, lends: "25k 33G 10k 15G"},
	// A pod of M1's class, in no class of Koordinator's and best-effort by Kubernetes, goes before all: 65 − 7 − 33 − 3; 78 − 12 − 33 − 5.
	{name: "above-all", scene: plain, change: func(s *scene) { s.pods = append(s.pods, guest{class: "high-priority", uses: load{3, 5}}) },
		lends: "22k 28G 10k 15G"},

	// U: min(10, 100 − 20); min(15, 210 − 45). Batch: 65 − 20; 136.5 − 10 − 40.
	{name: "mid", scene: middling, lends: "45k 86500M 10k 15G"},
	// U: min(15 + 80 × 10 %, 100 × 10 %); min(30 + 160 × 10 %, 210 × 20 %).
	{name: "mid-bounded", scene: middling, strategy: midBounded, change: predicted(15, 30), lends: "45k 86500M 10k 42G"},
	// U without bounds: 15 + (100 − 20) × 10 %; 30 + (210 − 10 − 40) × 10 %.
	{name: "mid-unallocated", scene: middling, strategy: midUnclaimed, change: predicted(15, 30), lends: "45k 86500M 23k 46G"},
	// A mid pod takes nothing of what is left for mid pods, and from batch what it asks for: 45 − 40; 86.5 − 40.
	{name: "mid-occupied", scene: middling, strategy: midUnclaimed, change: func(s *scene) {
		predicted(15, 30)(s)
		s.pods = append(s.pods, guest{class: "koord-mid", qos: "LS", asks: load{40, 40}})
	}, lends: "5k 46500M 23k 46G"},
	// System and production's application: 15 + (100 − (10 + 5) − 20) × 10 %; 30 + (210 − (20 + 5) − 40) × 10 %. From batch mid's own goes
	// too: 65 − (10 + 5 + 9) − 20; 136.5 − (20 + 5 + 9) − 40.
	{name: "mid-system", scene: middling, strategy: midUnclaimed, change: func(s *scene) {
		predicted(15, 30)(s)
		s.system, s.hosts = load{10, 20}, map[string]load{"koord-prod": {5, 5}, "koord-mid": {9, 9}}
	}, lends: "21k 62500M 21500 44500M"},
	// U in other numbers: less is idle than production leaves: min(10, 100 − 95); min(15, 210 − 205).
	{name: "mid-busy", scene: middling, change: func(s *scene) { s.node = load{95, 205} }, lends: "45k 86500M 5k 5G"},
	// U: nothing is predicted.
	{name: "mid-unpredicted", scene: middling, change: predicted(0, 0), lends: "45k 86500M 0 0"},
	// U: min(100 × 10 %, 100 × 10 %); min(210 × 10 %, 210 × 20 %), where production leaves more.
	{name: "mid-static", scene: middling, lends: "45k 86500M 10k 21G",
		strategy: midBounded + `, "midReclaimMode": "static", "midStaticCPUReservedPercent": 10, "midStaticMemoryReservedPercent": 10`},
	// U: by the node's labels: min(100, 10), min(210, 42).
	{name: "mid-static-labels", scene: middling, strategy: midBounded + `, "midReclaimMode": "static"`, change: func(s *scene) {
		s.labels = map[string]string{protocol.LabelMidStaticCPUReserved: "1", protocol.LabelMidStaticMemoryReserved: "1.0"}
	}, lends: "45k 86500M 10k 42G"},

	// U: 50 × 65 % − 7/2 − (28/2 + 5), − 28/2; 62 × 65 % − 12/2 − (28/2 + 5), 58 × 65 % − 12/2 − 28/2.
	{name: "zones", scene: halves, lends: "25k 33G 10k 15G", zones: "10k 15300M, 15k 17700M"},
	// The same with the second memory node first: zones go by the number in their name.
	{name: "zones-turned", scene: halves, change: func(s *scene) { s.zones = []zone{{1, load{50, 58}}, {0, load{50, 62}}} },
		lends: "25k 33G 10k 15G", zones: "15k 17700M, 10k 15300M"},
	// 32.5 − 20/2 − 19, − 14; 40.3 − 20/2 − 19, 37.7 − 20/2 − 14.
	{name: "zones-reserved", scene: halves, change: func(s *scene) {
		s.says(protocol.AnnotationNodeReservation, `{"resources": {"cpu": "20", "memory": "20G"}}`)
	}, lends: "12k 25G 10k 15G", zones: "3500 11300M, 8500 13700M"},
	// U: an LSE pod without a report in the first one, a pod that is gone in both: 32.5 − 3.5 − (14 + 10 + 1), − (14 + 1); 40.3 − (25 + 10),
	// 37.7 − 25. The node: 65 − 7 − (10 + 6 + 22 + 2); 78 − (10 + 10 + 40).
	{name: "zones-request", scene: halves, strategy: byRequest, change: func(s *scene) {
		s.pods[0].qos, s.pods[0].uses = "LSE", load{}
		s.pods = append(s.pods, guest{class: "koord-prod", qos: "LS", uses: load{2, 4}, gone: true})
	}, lends: "18k 18G 10k 15G", zones: "4k 5300M, 14k 12700M"},
	// The larger, pod by pod: in the first one 10, in both (10 + max(20, 22))/2 and (10 + 40)/2: 75 − 3.5 − 26, − 16; 74.4 − 6 − 35, 69.6 − 6 − 25.
	// The node: 150 − 7 − (10 + 10 + 22); 144 − 12 − (10 + 10 + 40).
	{name: "zones-larger", scene: halves, strategy: reclaimMore + "," + byLarger, lends: "101k 72G 10k 15G", zones: "45500 33400M, 55500 38600M"},
	// CPUs that do 1.2 times as much: 25 × 1.2, 10 × 1.2, 15 × 1.2.
	{name: "zones-normalised", scene: halves, change: normalised("quick", false, false), lends: "30k 33G 10k 15G", zones: "12k 15300M, 18k 17700M"},
	// The same model with hyper-threads, 1.4, and with turbo, 1.6.
	{name: "normalised-threads", scene: halves, change: normalised("quick", true, false), lends: "35k 33G 10k 15G", zones: "14k 15300M, 21k 17700M"},
	{name: "normalised-turbo", scene: halves, change: normalised("quick", false, true), lends: "40k 33G 10k 15G", zones: "16k 15300M, 24k 17700M"},
	// A model that is not listed: the default, 2, whatever it has.
	{name: "normalised-default", scene: halves, change: normalised("other", true, true), lends: "50k 33G 10k 15G", zones: "20k 15300M, 30k 17700M"},
}

// normalisingConfig are the ratios of those rows.
const normalisingConfig = `{"enable": false, "defaultRatio": 2,
  "ratioModel": {"quick": {"baseRatio": 1.2, "hyperThreadEnabledRatio": 1.4, "turboEnabledRatio": 1.6}}}`

// normalised has the node's CPUs be of a model, and counted by its ratio.
func normalised(model string, threads, turbo bool) func(*scene) {
	return func(s *scene) {
		s.labels = map[string]string{protocol.LabelNormalizationEnabled: "true"}
		s.model, s.threads, s.turbo = model, threads, turbo
	}
}

// formulas: each formula, by a node of its own at one time: what the manager reads of the node's objects is what its status says then. Neither nodes
// nor zones keep any of it when nothing is lent any more.
func (n *simulated) formulas(t *testing.T) {
	n.put(t, read(t, "testdata/manifests/m01-priorityclass-high.yaml"))
	if err := n.c.Namespace(t.Context(), guests); err != nil {
		t.Fatal(err)
	}
	all := map[string]*formula{}
	for i := range formulas {
		f := &formulas[i]
		s := f.scene()
		if f.change != nil {
			f.change(&s)
		}
		n.stage(t, "f-"+f.name, f.strategy, &s)
		all["f-"+f.name] = f
	}
	for name, f := range n.documentsMetric(t) {
		all[name] = f
	}
	n.tell(t, map[string]string{keyColocation: formulasConfig, keyNormalization: normalisingConfig})
	begun := time.Now()
	eventually(t, 60*time.Second, func() error {
		var errs []error
		for name, f := range all {
			errs = append(errs, n.agrees(t, name, f))
		}
		return errors.Join(errs...)
	})
	t.Logf("%d nodes lend by their formulas after %s", len(all), time.Since(begun).Round(time.Millisecond))
	n.arrives(t)
	n.tell(t, map[string]string{keyColocation: "", keyNormalization: ""})
	eventually(t, 60*time.Second, func() error {
		var errs []error
		for name, f := range all {
			nothing := formula{}
			if f.zones != "" {
				nothing.zones = " ,  " // of two
			}
			errs = append(errs, n.agrees(t, name, &nothing))
		}
		return errors.Join(errs...)
	})
}

// arrives: what a production pod asks for is taken from batch as soon as it is on the node: 25 − 5 and 33 − 6. No report has it.
func (n *simulated) arrives(t *testing.T) {
	t.Helper()
	const name = "f-usage"
	n.guest(t, name, name+"-late", guest{class: "koord-prod", qos: "LS", asks: load{5, 6}})
	eventually(t, 30*time.Second, func() error { return n.agrees(t, name, &formula{lends: "20k 27G 10k 15G"}) })
}
