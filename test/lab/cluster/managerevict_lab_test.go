// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// starvedConfig is resource-threshold-config by which the best-effort class gets a tenth of the node, and its pods go while that is at
// most 15 % of what they request, until it is a quarter. What they use does not matter: on a large machine a tenth is more than idle
// pods use.
const starvedConfig = `{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 10,
  "cpuSuppressMinPercent": 10, "cpuEvictBESatisfactionLowerPercent": 15, "cpuEvictBESatisfactionUpperPercent": 25,
  "cpuEvictBEUsageThresholdPercent": 0, "cpuEvictTimeWindowSeconds": 10, "memoryEvictThresholdPercent": 100}}`

// starved: a batch pod takes most of the CPU that the node still lends, and suppression leaves its class a tenth of the node. The pod whose
// annotation offers it goes, for exactly its UID, though it computes nothing and a small one does; as soon as these alone are left they
// have enough, and stay.
func (m *managed) starved(t *testing.T) {
	allocatable, _ := m.batchCPU(t)
	small := []string{"spark", "spark-after"}
	free := allocatable - int64(len(small))*500
	tenth := int64(runtime.NumCPU()) * 100
	wide := free * 3 / 4 // the node lends less while others compute, and the pod must still fit
	if request := wide + int64(len(small))*500; request*15/100 < tenth {
		t.Fatalf("batch pods would request %d of %d: a tenth of the node, %d, would be enough for them", request, allocatable, tenth)
	}
	main := fmt.Sprintf("resources: {requests: {cpu: %dm, memory: 16Mi}, limits: {cpu: %dm, memory: 16Mi}}", wide, wide)
	meta := "labels: {app: spark}, annotations: {" + protocol.AnnotationEvictionPriority + `: "-5"}`
	if _, err := m.c.Admin().Apply(t.Context(), "user", false, []byte(podText("spark-wide", meta, "", main))); err != nil {
		t.Fatal(err)
	}
	pod := m.ready(t, "spark-wide")
	if got := quantityAt(t, pod, "spec", "containers", 0, "resources", "requests", protocol.ResourceBatchCPU) / 1000; got != wide {
		t.Fatalf("spark-wide requests %d batch-cpu, want %d", got, wide)
	}

	stop := m.spinIn(t, m.ready(t, "spark"), other) // of equal priority it would be the first to go
	defer stop()
	since := time.Now()
	m.tell(t, map[string]string{keyThreshold: starvedConfig})
	m.quotaWithin(t, 9, 11)
	first := m.wrote(t, 60*time.Second, "create pods/eviction", since)
	t.Logf("%s is evicted %s after the strategy; batch pods requested %d, the class has %d", first.Object.Name,
		first.At.Sub(since).Round(time.Millisecond), wide+int64(len(small))*500, tenth)
	m.gone(t, "spark-wide")
	eventually(t, 10*time.Second, func() error { return m.told(t, "spark-wide", "Evicted", "Warning", "BECPUEvict") })

	m.ticksTo(t, m.ticked(t)+12) // longer than the window, of which the rule wants the last second too
	m.quotaWithin(t, 9, 11)
	var got []string
	for _, c := range m.agentCalls(t, func(c *call) bool { return c.what() == "create pods/eviction" && c.At.After(since) }) {
		got = append(got, fmt.Sprintf("%s %s %d", c.Object.Name, c.body(t).Str("deleteOptions", "preconditions", "uid"), c.Response.Code))
	}
	if want := []string{"spark-wide " + pod.Str("metadata", "uid") + " 201"}; !slices.Equal(got, want) {
		t.Errorf("evictions (pod, UID, answer) %q, want %q", got, want)
	}
	for _, name := range append(small, "be-low", "be-kept", "ls", "web") {
		m.untouched(t, name)
	}
	m.tell(t, map[string]string{keyThreshold: thresholdOff(59)})
	m.slo(t, 10*time.Second, "NodeSLO after the eviction", func(o cluster.Object) bool { return percent(o, "cpuSuppressThresholdPercent") == 59 })
}
