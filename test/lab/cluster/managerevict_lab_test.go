// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
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
	pod := m.batchPod(t, "spark-wide", "labels: {app: spark}, annotations: {"+protocol.AnnotationEvictionPriority+`: "-5"}`, wide, 16)

	stop := m.spinIn(t, m.ready(t, "spark"), other) // of equal priority it would be the first to go
	defer stop()
	since := time.Now()
	m.tell(t, map[string]string{keyThreshold: starvedConfig})
	m.quotaWithin(t, 9, 11)
	m.goesAlone(t, pod, "BECPUEvict", since)
	m.quotaWithin(t, 9, 11)
	m.calm(t, 59)
}

// overbooked: batch pods request more of batch-cpu than a part of it that lies between what they request with and without the wide pod.
// That one goes, which alone has agreed to it; nobody computes anything.
func (m *managed) overbooked(t *testing.T) {
	allocatable, _ := m.batchCPU(t)
	const rest = 2 * 500 // of spark and spark-after
	wide := (allocatable - rest) * 3 / 4
	pod := m.batchPod(t, "spark-wide", sparkGoes, wide, 16)
	percent := (rest + wide/2) * 100 / allocatable
	since := time.Now()
	m.tell(t, map[string]string{keyThreshold: fmt.Sprintf(`{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota", "memoryEvictThresholdPercent": 100,
  "cpuAllocatableEvictThresholdPercent": %d, "cpuAllocatableEvictLowerPercent": %d, "allocatableEvictPriorityThreshold": 5999}}`, percent, percent-1)})
	m.goesAlone(t, pod, "CPUAllocatableEvict", since)
	m.calm(t, 58)
}

// sparkGoes are the labels of a batch pod of the profile that has agreed to go.
const sparkGoes = "labels: {app: spark, " + protocol.LabelEvictionEnabled + `: "true"}`

// overbookedMemory is overbooked with batch-memory, of which the wide pod requests half of what is left. It holds next to nothing.
func (m *managed) overbookedMemory(t *testing.T) {
	allocatable := quantityAt(t, m.node(t), "status", "allocatable", protocol.ResourceBatchMemory) / 1000 / mib
	const rest = 2 * 64
	wide := (allocatable - rest) / 2
	pod := m.batchPod(t, "spark-wide", sparkGoes, 10, wide)
	percent := (rest + wide/2) * 100 / allocatable
	since := time.Now()
	m.tell(t, map[string]string{keyThreshold: fmt.Sprintf(`{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota", "memoryEvictThresholdPercent": 100,
  "memoryAllocatableEvictThresholdPercent": %d, "memoryAllocatableEvictLowerPercent": %d, "allocatableEvictPriorityThreshold": 5999}}`, percent, percent-1)})
	m.goesAlone(t, pod, "MemoryAllocatableEvict", since)
	m.calm(t, 56)
}

// filled: the node is to bear half of the memory that it uses, which no eviction here can reach. One pod has agreed to go for that by its
// priority, and goes; the best-effort ones are there for another feature only.
func (m *managed) filled(t *testing.T) {
	m.othersFor(t, `["CPUEvict"]`)
	meta := "labels: {koordinator.sh/qosClass: BE, " + protocol.LabelEvictionEnabled + `: "true"}, annotations: {` + protocol.AnnotationEvictionPolicy + `: '["MemoryEvict"]'}`
	main := `command: [sh, -c, "dd if=/dev/zero bs=64M count=1 | sleep 2147483647"]`
	if _, err := m.c.Admin().Apply(t.Context(), "user", false, []byte(podText("hog", meta, "priorityClassName: batch-low", main))); err != nil {
		t.Fatal(err)
	}
	pod := m.ready(t, "hog")
	m.sees(t, `koord_rt_koordlet_pod_memory_bytes\{[^}]*pod_name="hog"[^}]*\} .*`) // and with it what was changed before
	since := time.Now()
	m.tell(t, map[string]string{keyThreshold: strings.Replace(evictConfig(m.halfOfUse(t)), `"enable"`, `"evictEnabledPriorityThreshold": 5999, "enable"`, 1)})
	m.goesAlone(t, pod, "MemoryEvict", since)
	m.calm(t, 54)
	m.othersFor(t, nil)
}

// inDanger is danger by the account of packaging/manifests, whose deletion their policy lets pass. What is patched for it are overrides.
func (m *managed) inDanger(t *testing.T) {
	m.othersFor(t, `["CPUEvict"]`)
	m.danger(t)
	m.othersFor(t, nil)
}

// othersFor are the features that the best-effort pods of the steps before may be evicted by; nil are all.
func (m *managed) othersFor(t *testing.T, policy any) {
	t.Helper()
	for _, name := range []string{"spark", "spark-after", "be-low", "be-kept"} {
		change := map[string]any{"metadata": map[string]any{"annotations": map[string]any{protocol.AnnotationEvictionPolicy: policy}}}
		if _, err := m.c.Admin().Patch(t.Context(), batchPods+name, cluster.MergePatch, change); err != nil {
			t.Fatal(err)
		}
	}
}

// overusedConfig is resource-threshold-config by which pods of low priority that have agreed go while the node computes four fifths of
// what it can, until it is half. Suppression leaves the best-effort class nine tenths of the node: it would hold it to less, and there were
// nothing to evict for, where an LS pod waits for a CPU.
const overusedConfig = `{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 100, "cpuSuppressMinPercent": 90,
  "cpuEvictThresholdPercent": 80, "cpuEvictLowerPercent": 50, "cpuEvictTimeWindowSeconds": 10, "evictEnabledPriorityThreshold": 5999,
  "memoryEvictThresholdPercent": 100}}`

// overused: a best-effort pod computes on every CPU of the node. It goes; pods of its priority that have not agreed to it stay.
func (m *managed) overused(t *testing.T) {
	meta := "labels: {koordinator.sh/qosClass: BE, " + protocol.LabelEvictionEnabled + `: "true"}`
	// Its own processes compute: one of the host in its cgroup would keep the container from ending.
	main := fmt.Sprintf(`command: [sh, -c, "for i in $(seq %d); do while :; do :; done & done; wait"]`, runtime.NumCPU())
	if _, err := m.c.Admin().Apply(t.Context(), "user", false, []byte(podText("greedy", meta, "priorityClassName: batch-low", main))); err != nil {
		t.Fatal(err)
	}
	pod := m.ready(t, "greedy")
	since := time.Now()
	m.tell(t, map[string]string{keyThreshold: overusedConfig})
	m.goesAlone(t, pod, "CPUEvict", since)
	m.calm(t, 57)
}

// batchPod makes a batch pod that requests some thousandths of a CPU and some MiB.
func (m *managed) batchPod(t *testing.T, name, meta string, request, memory int64) cluster.Object {
	t.Helper()
	main := fmt.Sprintf("resources: {requests: {cpu: %[1]dm, memory: %[2]dMi}, limits: {cpu: %[1]dm, memory: %[2]dMi}}", request, memory)
	if _, err := m.c.Admin().Apply(t.Context(), "user", false, []byte(podText(name, meta, "", main))); err != nil {
		t.Fatal(err)
	}
	pod := m.ready(t, name)
	if got := quantityAt(t, pod, "spec", "containers", 0, "resources", "requests", protocol.ResourceBatchCPU) / 1000; got != request {
		t.Fatalf("%s requests %d batch-cpu, want %d", name, got, request)
	}
	return pod
}

// goesAlone wants one eviction since then, that of exactly this pod, by this feature, and every other pod to stay for longer than the
// window, of which each rule wants the last second too.
func (m *managed) goesAlone(t *testing.T, pod cluster.Object, feature string, since time.Time) {
	t.Helper()
	name := pod.Str("metadata", "name")
	first := m.wrote(t, 60*time.Second, "create pods/eviction", since)
	t.Logf("%s is evicted %s after the strategy", first.Object.Name, first.At.Sub(since).Round(time.Millisecond))
	m.gone(t, name)
	eventually(t, 10*time.Second, func() error { return m.told(t, name, "Evicted", "Warning", feature) })
	m.ticksTo(t, m.ticked(t)+12)
	var got []string
	for _, c := range m.agentCalls(t, func(c *call) bool { return c.what() == "create pods/eviction" && c.At.After(since) }) {
		got = append(got, fmt.Sprintf("%s %s %s", c.Object.Name, c.body(t).Str("deleteOptions", "preconditions", "uid"), c.answer()))
	}
	this := name + " " + pod.Str("metadata", "uid") + " "
	if want := []string{this + "201"}; !slices.Equal(excused(t, got, this+undecided), want) {
		t.Errorf("evictions (pod, UID, answer) %q, want %q", got, want)
	}
	for _, name := range []string{"spark", "spark-after", "be-low", "be-kept", "ls", "web"} {
		m.untouched(t, name)
	}
}

// calm switches all thresholds off; high tells one strategy from the next.
func (m *managed) calm(t *testing.T, high int) {
	t.Helper()
	m.tell(t, map[string]string{keyThreshold: thresholdOff(high)})
	m.slo(t, 60*time.Second, "NodeSLO after the eviction", func(o cluster.Object) bool { return percent(o, "cpuSuppressThresholdPercent") == high })
}
