// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/kept"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
)

// TestMemory: what the controllers' cache holds of each object, by the cluster of test/bench's benchmark of the manager: its nodes, pods
// and reports, with what the API server adds. Limits are what was measured and a third; a field that is kept again goes through them.
func TestMemory(t *testing.T) {
	c, problems := config.Parse(map[string]string{
		config.KeyColocation: `{"enable": true}`, config.KeyThreshold: `{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 65}}`,
		config.KeyQOS: `{"clusterStrategy": {"lsClass": {"cpuQOS": {"enable": true, "groupIdentity": 2}, "memoryQOS": {"enable": true, "minLimitPercent": 100}},
			"beClass": {"cpuQOS": {"enable": true, "groupIdentity": -1}, "memoryQOS": {"enable": true, "throttlingPercent": 80}, "resctrlQOS": {"enable": true, "catRangeEndPercent": 30}}}}`,
		config.KeyBurst: `{"clusterStrategy": {"policy": "auto", "cpuBurstPercent": 1000}}`, config.KeySystem: `{"clusterStrategy": {"watermarkScaleFactor": 200}}`,
	}, nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	const nodes, pods = 5000, 50_000
	for _, tc := range []struct {
		roles []string
		// limits in bytes an object.
		pod, metric, node, slo int
	}{
		{[]string{RoleSLO}, 780, 4700, 7200, 2800},
		{[]string{RoleRecommender, RoleSLO}, 860, 9100, 7200, 2800},
	} {
		var all int
		for _, kind := range []struct {
			name          string
			holds, number int
			limit         int
			make          func(i int) client.Object
			index         toolscache.Indexers
		}{
			{"pod", 10_000, pods, tc.pod, memoryPod, toolscache.Indexers{"node": func(o any) ([]string, error) { return []string{o.(*kept.Pod).Node}, nil }}},
			{"NodeMetric", 500, nodes, tc.metric, memoryMetric, nil}, {"node", 500, nodes, tc.node, memoryNode, nil}, {"NodeSLO", 500, nodes, tc.slo, memorySLO(t, c), nil},
		} {
			held := heldBy(t, electedCache(&Options{Roles: tc.roles}), kind.holds, kind.make, kind.index)
			t.Logf("%v: %s: %d bytes", tc.roles, kind.name, held)
			if all += held * kind.number; held > kind.limit {
				t.Errorf("%v: the cache holds %d bytes of a %s, more than %d", tc.roles, held, kind.name, kind.limit)
			}
		}
		t.Logf("%v: %d nodes and %d pods: %d MiB", tc.roles, nodes, pods, all>>20)
	}
}

// heldBy is what n objects cost in a store, each.
func heldBy(t *testing.T, o cache.Options, n int, create func(i int) client.Object, index toolscache.Indexers) int {
	t.Helper()
	if index == nil {
		index = toolscache.Indexers{}
	}
	index[toolscache.NamespaceIndex] = toolscache.MetaNamespaceIndexFunc
	var slim toolscache.TransformFunc
	kind := fmt.Sprintf("%T", create(0))
	for of, how := range o.ByObject {
		if fmt.Sprintf("%T", of) == kind {
			slim = how.Transform
		}
	}
	if slim == nil {
		t.Fatalf("nothing makes a %s small", kind)
	}
	store := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, index)
	before := live()
	for i := range n {
		object, err := slim(create(i))
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Add(object); err != nil {
			t.Fatal(err)
		}
	}
	after := live()
	runtime.KeepAlive(store)
	return int(after-before) / n
}

// live is what the heap holds.
func live() int64 {
	runtime.GC()
	runtime.GC() // the first leaves what finalizers, and shared texts, still hold
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// decoded is a typed object as a client makes it of JSON; wired, of protobuf, each text of it its own.
func decoded[T any](text string) *T {
	out := new(T)
	if err := json.Unmarshal([]byte(text), out); err != nil {
		panic(err)
	}
	return out
}

func wired[T any, P interface {
	*T
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}](text string) *T {
	wire, err := P(decoded[T](text)).Marshal()
	if err != nil {
		panic(err)
	}
	out := new(T)
	if err := P(out).Unmarshal(wire); err != nil {
		panic(err)
	}
	return out
}

// stored is the metadata that the API server adds.
func stored(i int, managed string) string {
	return fmt.Sprintf(`"uid":"%08x-7e57-4e57-8e57-%012x","resourceVersion":"%d","generation":1,"creationTimestamp":"2026-11-22T10:00:00Z","managedFields":[
		{"manager":"koord-manager","operation":"Apply","apiVersion":"v1","time":"2026-11-22T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":%s}]`, i, i, 100_000+i, managed)
}

// memoryPod and the others are object i as a client makes it.
func memoryPod(i int) client.Object {
	node, nth := i/10, i%10 // ten of a node, as 50,000 of 5,000
	class, amounts := `"LS"`, `{"cpu":"2","memory":"4Gi"}`
	if nth >= 6 {
		class, amounts = `"BE","koordinator.sh/priority-class":"koord-batch"`, `{"kubernetes.io/batch-cpu":"1k","kubernetes.io/batch-memory":"2Gi"}`
	}
	var env []string
	for n := range 12 {
		env = append(env, fmt.Sprintf(`{"name":"SETTING_%d","value":"https://service-%d.example.com/path/%d"}`, n, n, i))
	}
	return wired[corev1.Pod](fmt.Sprintf(`{"metadata":{"name":"app-%03d-%05d-%03d","namespace":"koord-bench",%s,
		"labels":{"app":"app-%03d","pod-template-hash":"%08x","koordinator.sh/qosClass":%s},"annotations":{"example.com/owner":"team"},
		"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"app-%03d","uid":"%08x-7e57-4e57-8e57-000000000000","controller":true}]},
		"spec":{"nodeName":"node-%05d","priority":9000,"containers":[{"name":"main","image":"registry.example.com/team/app:1.2.3","env":[%s],"resources":{"requests":%s,"limits":%s}}]},
		"status":{"phase":"Running","qosClass":"Burstable","podIP":"10.0.0.1"}}`,
		node%500, node, nth, stored(i, `{"f:spec":{}}`), node%500, node%500, class, node%500, node%500, node, strings.Join(env, ","), amounts, amounts))
}

func memoryNode(i int) client.Object {
	const amounts = `{"cpu":"32","memory":"128Gi","pods":"110","ephemeral-storage":"200Gi","hugepages-1Gi":"0","hugepages-2Mi":"0",
		"kubernetes.io/batch-cpu":"12345","kubernetes.io/batch-memory":"12345678","kubernetes.io/mid-cpu":"1234","kubernetes.io/mid-memory":"12345678"}`
	return wired[corev1.Node](fmt.Sprintf(`{"metadata":{"name":"node-%05d",%s,"annotations":{"node.alpha.kubernetes.io/ttl":"0","node.koordinator.sh/cpu-normalization-ratio":"1.00"},
		"labels":{"kubernetes.io/hostname":"node-%05d","kubernetes.io/arch":"amd64","kubernetes.io/os":"linux","topology.kubernetes.io/zone":"zone-%d","node.kubernetes.io/instance-type":"simulated"}},
		"status":{"capacity":%s,"allocatable":%s,"images":[{"names":["registry.example.com/team/app:1.2.3"],"sizeBytes":1}],"conditions":[{"type":"MemoryPressure","status":"False"},
		{"type":"DiskPressure","status":"False"},{"type":"PIDPressure","status":"False"},{"type":"Ready","status":"True","reason":"KubeletReady"}]}}`,
		i, stored(i, `{"f:status":{}}`), i, i%3, amounts, amounts))
}

func memoryMetric(i int) client.Object {
	var pods, windows []string
	for nth := range 30 {
		pods = append(pods, fmt.Sprintf(`{"namespace":"koord-bench","name":"app-%03d-%05d-%03d","priority":"koord-prod","qos":"LS","podUsage":{"resources":{"cpu":"%dm","memory":"%dMi"}}}`,
			i%500, i, nth, 400+nth, 1200+nth))
	}
	for _, window := range []string{"5m0s", "10m0s", "30m0s"} {
		var quantiles []string
		for _, q := range []string{"avg", "p50", "p90", "p95", "p99"} {
			quantiles = append(quantiles, fmt.Sprintf(`%q:{"resources":{"cpu":"13500m","memory":"40000Mi"}}`, q))
		}
		windows = append(windows, fmt.Sprintf(`{"duration":%q,"usage":{%s}}`, window, strings.Join(quantiles, ",")))
	}
	return decoded[slov1alpha1.NodeMetric](fmt.Sprintf(`{"apiVersion":"slo.koordinator.sh/v1alpha1","kind":"NodeMetric","metadata":{"name":"node-%05d",%s},
		"spec":{"nodeName":"node-%05d","metricCollectPolicy":{"aggregateDurationSeconds":300,"reportIntervalSeconds":60,"nodeAggregatePolicy":{"durations":["5m0s","10m0s","30m0s"]},"nodeMemoryCollectPolicy":"usageWithoutPageCache"}},
		"status":{"updateTime":"2026-11-22T10:00:00Z","nodeMetric":{"nodeUsage":{"resources":{"cpu":"13500m","memory":"40000Mi"}},"systemUsage":{"resources":{"cpu":"1","memory":"2Gi"}},"aggregatedNodeUsages":[%s]},
		"podsMetric":[%s],"prodReclaimableMetric":{"resource":{"resources":{"cpu":"4","memory":"8Gi"}}}}}`, i,
		stored(i, `{"f:spec":{"f:nodeName":{},"f:metricCollectPolicy":{"f:aggregateDurationSeconds":{},"f:nodeAggregatePolicy":{"f:durations":{}},"f:nodeMemoryCollectPolicy":{},"f:reportIntervalSeconds":{}}}}`), i,
		strings.Join(windows, ","), strings.Join(pods, ",")))
}

// memorySLO gives NodeSLOs of a strategy. Its managed fields are as long as its spec.
func memorySLO(t *testing.T, c *config.Config) func(i int) client.Object {
	t.Helper()
	spec, _ := c.NodeSLO(config.Node{Name: "node"})
	text, err := json.Marshal(slov1alpha1.NodeSLOSpecOf(spec))
	if err != nil {
		t.Fatal(err)
	}
	return func(i int) client.Object {
		return decoded[slov1alpha1.NodeSLO](fmt.Sprintf(`{"metadata":{"name":"node-%05d",%s},"spec":%s}`, i, stored(i, fmt.Sprintf(`{"f:spec":%s}`, text)), text))
	}
}
