// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// TestClusterManagerNodes: koord-manager with the role slo alone, and the rights of packaging/manifests, against a real API server. The nodes are
// objects that nobody runs. The documents' NodeMetric and Device act as they say, and each key of the ConfigMap says its part. A user's half of two
// fields that are checked against each other, the documents' NodeSLOs and an API server that refuses a field hold up nothing else. A manager that begins
// with a ConfigMap that cannot be read leaves the nodes as they are; one without a ConfigMap takes everything back. What was made for a node goes after it. Each sign that a node is not sound
// takes away what the guide says. Each formula is what the status of a node says, by that node's objects. A manager that is told another ConfigMap, and one
// controller without a lease, keeps to that.
func TestClusterManagerNodes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	n := &simulated{dir: t.TempDir(), outer: t}
	n.c = start(t, filepath.Join(n.dir, "cluster"))
	if err := n.c.ApplyFolder(ctx, definitions); err != nil {
		t.Fatal(err)
	}
	if err := n.c.InstallManager(ctx, filepath.Dir(manifest(""))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{documented, "node-002"} {
		n.node(t, name)
	}
	n.manager(t)
	for _, s := range []struct {
		name string
		test func(*testing.T)
	}{
		{"NodeMetric", n.metric}, {"Device", n.device}, {"keys", n.keys}, {"one half overridden", n.halves}, {"NodeSLOs of the documents", n.documents},
		{"refused", n.refusal}, {"not sound", n.unsound}, {"formulas", n.formulas}, {"restarted while broken", n.restartBroken}, {"ConfigMap deleted", n.deleted},
		{"node of another life", n.anotherLife}, {"node gone", n.gone}, {"another ConfigMap", n.elsewhere},
	} {
		if !t.Run(s.name, s.test) {
			return // each goes on from where the one before has ended
		}
	}
}

// documented is the node of the documents.
const documented = "node-001"

// orphanKept is how long objects that the manager has made outlive their node here.
const orphanKept = 2 * time.Second

// simulated is a cluster of node objects with a koord-manager.
type simulated struct {
	c       *cluster.Cluster
	dir     string
	outer   *testing.T
	running *replica
	started int
}

func (n *simulated) node(t *testing.T, name string) {
	t.Helper()
	amounts := map[string]any{"cpu": "128", "memory": "128Gi", "pods": "100"}
	node := cluster.Object{"metadata": map[string]any{"name": name}, "status": map[string]any{"capacity": amounts, "allocatable": amounts}}
	if _, err := n.c.Admin().Create(t.Context(), "/api/v1/nodes", node); err != nil {
		t.Fatal(err)
	}
}

// manager starts koord-manager, with more flags than the usual ones, in the place of the one that runs: asked to end, that one gives its lease back.
func (n *simulated) manager(t *testing.T, more ...string) {
	t.Helper()
	if n.running != nil {
		if err := n.running.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case <-n.running.done:
		case <-time.After(soon):
			t.Fatal("koord-manager does not end when it is asked to")
		}
	}
	kubeconfig, err := n.c.Kubeconfig(managerUser, "system:serviceaccounts", "system:serviceaccounts:"+system)
	if err != nil {
		t.Fatal(err)
	}
	at := freeAddresses(t, 2)
	n.started++
	n.running = &replica{log: filepath.Join(n.dir, "manager-"+strconv.Itoa(n.started)+".log"), metrics: "http://" + at[0] + "/metrics"}
	n.running.process = startProgram(n.outer, n.running.log, bin("koord-manager"), append([]string{
		"--kubeconfig=" + kubeconfig, "--v=4", "--roles=slo", "--orphan-keep=" + orphanKept.String(), "--metrics-addr=" + at[0], "--health-probe-addr=" + at[1],
	}, more...)...)
}

// becomes waits until an object is as it should be.
func (n *simulated) becomes(t *testing.T, path, what string, ok func(cluster.Object) bool) cluster.Object {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	begun := time.Now()
	o, err := n.c.Admin().Wait(ctx, path, what, func(o cluster.Object) bool { return o != nil && ok(o) })
	if err != nil {
		t.Fatalf("%v; %s", err, o.Compact())
	}
	t.Logf("%s after %s", what, time.Since(begun).Round(time.Millisecond))
	return o
}

func (n *simulated) tell(t *testing.T, keys map[string]string) {
	t.Helper()
	if err := n.c.TellManager(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
}

func (n *simulated) put(t *testing.T, text string) {
	t.Helper()
	if _, err := n.c.Admin().Apply(t.Context(), "user", false, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// metric: the manager makes the documents' NodeMetric, spec.nodeName included; with a user's own (M7), whose interval is an override, it writes
// the rest.
func (n *simulated) metric(t *testing.T) {
	made := n.becomes(t, reports+"/"+documented, "NodeMetric", func(o cluster.Object) bool { return o.At("spec") != nil })
	policy := func(more string) string {
		return `{"metricCollectPolicy":{"aggregateDurationSeconds":300,"nodeAggregatePolicy":{"durations":["5m0s","10m0s","30m0s"]},` +
			`"nodeMemoryCollectPolicy":"usageWithoutPageCache"` + more + `},"nodeName":"node-001"}`
	}
	if got, want := made.Compact("spec"), policy(`,"reportIntervalSeconds":60`); got != want {
		t.Errorf("spec %s, want %s", got, want)
	}
	n.put(t, read(t, "testdata/manifests/m07-nodemetric.yaml"))
	at := []any{"spec", "metricCollectPolicy", "reportIntervalSeconds"}
	n.becomes(t, reports+"/"+documented, "NodeMetric with the user's interval alone", func(o cluster.Object) bool {
		return o.At(at...) == nil && o.Int("spec", "collectionIntervalSeconds") == 60
	})
	n.tell(t, map[string]string{keyColocation: `{"enable": false, "metricReportIntervalSeconds": 30, "metricAggregateDurationSeconds": 120}`})
	n.becomes(t, reports+"/node-002", "other NodeMetric with the cluster's interval", func(o cluster.Object) bool { return o.Int(at...) == 30 })
	got := n.becomes(t, reports+"/"+documented, "NodeMetric with the cluster's other fields", func(o cluster.Object) bool {
		return o.Int("spec", "metricCollectPolicy", "aggregateDurationSeconds") == 120
	})
	if got.At(at...) != nil || got.Int("spec", "collectionIntervalSeconds") != 60 || got.Str("spec", "nodeName") != documented {
		t.Errorf("spec %s, want the user's interval alone", got.Compact("spec"))
	}
}

// device: what the healthy devices of M14 have is the node's, with the model of its GPUs; what fails goes within a second, and what is
// taken out goes too. Vendor and driver that the Device's labels tell are the node's.
func (n *simulated) device(t *testing.T) {
	const path = "/apis/scheduling.koordinator.sh/v1alpha1/devices/" + documented
	n.put(t, read(t, "testdata/manifests/m14-device.yaml"))
	gives := func(what string, want map[string]string) cluster.Object {
		t.Helper()
		return n.becomes(t, "/api/v1/nodes/"+documented, what, func(o cluster.Object) bool {
			return reflect.DeepEqual(ourAmounts(o, "allocatable"), want) && reflect.DeepEqual(ourAmounts(o, "capacity"), want)
		})
	}
	want := map[string]string{
		protocol.ResourceGPU: "200", protocol.ResourceGPUCore: "200", protocol.ResourceGPUMemory: fmt.Sprint(80 << 30),
		protocol.ResourceGPUMemoryRatio: "200", protocol.ResourceRDMA: "100", protocol.ResourceFPGA: "100",
	}
	node := gives("node with the devices of the documents", want)
	if got := node.Str("metadata", "labels", protocol.LabelGPUModel); got != "nvidia-a100" {
		t.Errorf("label %s is %q", protocol.LabelGPUModel, got)
	}
	o, err := n.c.Admin().Get(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	list, _ := o.At("spec", "devices").([]any)
	// become sets the health of a GPU and the FPGA, and returns how long the node takes to have what is left.
	become := func(healthy bool, what string, left map[string]string) time.Duration {
		t.Helper()
		for _, i := range []int{0, 3} {
			list[i].(map[string]any)["health"] = healthy
		}
		begun := time.Now()
		if _, err := n.c.Admin().Patch(t.Context(), path, cluster.MergePatch, map[string]any{"spec": map[string]any{"devices": list}}); err != nil {
			t.Fatal(err)
		}
		gives(what, left)
		return time.Since(begun)
	}
	fail := func() time.Duration {
		t.Helper()
		return become(false, "node of which two devices have failed", map[string]string{
			protocol.ResourceGPU: "100", protocol.ResourceGPUCore: "100", protocol.ResourceGPUMemory: fmt.Sprint(40 << 30),
			protocol.ResourceGPUMemoryRatio: "100", protocol.ResourceRDMA: "100",
		})
	}
	if err := mostly(5, time.Second, func(again bool) time.Duration {
		if again {
			become(true, "node whose devices are healthy again", want)
		}
		return fail()
	}); err != nil {
		t.Errorf("two devices that had failed were the node's: %v", err)
	}
	labels := map[string]any{protocol.LabelGPUVendor: "nvidia", protocol.LabelGPUDriverVersion: "550.54.15"}
	if _, err := n.c.Admin().Patch(t.Context(), path, cluster.MergePatch, map[string]any{"metadata": map[string]any{"labels": labels}}); err != nil {
		t.Fatal(err)
	}
	n.becomes(t, "/api/v1/nodes/"+documented, "node with the vendor and the driver of its GPUs", func(o cluster.Object) bool {
		return o.At("metadata", "labels", protocol.LabelGPUVendor) == "nvidia" && o.At("metadata", "labels", protocol.LabelGPUDriverVersion) == "550.54.15"
	})
	if err := n.c.Admin().Delete(t.Context(), path, -1); err != nil {
		t.Fatal(err)
	}
	gives("node without devices", map[string]string{})
}

// ourAmounts are the resources of a list of the node's status that machines do not have by themselves.
func ourAmounts(node cluster.Object, list string) map[string]string {
	out := map[string]string{}
	all, _ := node.At("status", list).(map[string]any)
	for name, v := range all {
		if name != "cpu" && name != "memory" && name != "pods" {
			out[name], _ = v.(string)
		}
	}
	return out
}

// restartBroken: a manager that begins with a key that cannot be read does not know what that said: the objects stay as they are, a new node gets
// what the other keys say, and the repair acts.
func (n *simulated) restartBroken(t *testing.T) {
	nodes := []string{documented, "node-002"}
	n.tell(t, map[string]string{keyThreshold: thresholdConfig(65), keyBurst: burstConfig(500)})
	before := map[string]string{}
	for _, name := range nodes {
		o := n.becomes(t, slos+"/"+name, "NodeSLO of "+name, func(o cluster.Object) bool {
			return percent(o, "cpuSuppressThresholdPercent") == 65 && o.Int("spec", "cpuBurstStrategy", "cpuBurstPercent") == 500
		})
		before[name] = o.Str("metadata", "resourceVersion")
	}
	n.tell(t, map[string]string{keyThreshold: `{"clusterStrategy": {"cpuSuppressThresholdPercent": "high"}}`})
	n.manager(t)
	n.running.shows(t, 30*time.Second, `koord_rt_manager_config_problems\{key="`+keyThreshold+`"\} 1`)
	n.node(t, "node-003")
	o := n.becomes(t, slos+"/node-003", "NodeSLO of a new node", func(o cluster.Object) bool { return o.Int("spec", "cpuBurstStrategy", "cpuBurstPercent") == 500 })
	if o.At("spec", "resourceUsedThresholdWithBE") != nil {
		t.Errorf("a new node by a key that was never read: %s", o.Compact("spec"))
	}
	for _, name := range nodes {
		if o, err := n.c.Admin().Get(t.Context(), slos+"/"+name); err != nil || o.Str("metadata", "resourceVersion") != before[name] {
			t.Errorf("%s was written after a restart with a broken key: %v, %s", name, err, o.Compact("spec"))
		}
	}
	// By another key it looks at all nodes again, and leaves what it does not know.
	n.tell(t, map[string]string{keyBurst: burstConfig(400)})
	for _, name := range nodes {
		o := n.becomes(t, slos+"/"+name, "NodeSLO of "+name+" by the other key", func(o cluster.Object) bool { return o.Int("spec", "cpuBurstStrategy", "cpuBurstPercent") == 400 })
		if percent(o, "cpuSuppressThresholdPercent") != 65 || percent(o, "memoryEvictThresholdPercent") != 100 {
			t.Errorf("%s after a restart with a broken key: %s", name, o.Compact("spec"))
		}
	}
	n.tell(t, map[string]string{keyThreshold: thresholdConfig(55)})
	for _, name := range append(nodes, "node-003") {
		n.becomes(t, slos+"/"+name, "NodeSLO of "+name+" after the repair", func(o cluster.Object) bool { return percent(o, "cpuSuppressThresholdPercent") == 55 })
	}
}

// deleted: without the ConfigMap every key means its default, also one that could not be read, and defaults are not written. What a user has written stays.
func (n *simulated) deleted(t *testing.T) {
	users := map[string]any{"spec": map[string]any{"cpuBurstStrategy": map[string]any{"policy": "none"}}}
	if _, err := n.c.Admin().Patch(t.Context(), slos+"/node-002", cluster.MergePatch, users); err != nil {
		t.Fatal(err)
	}
	n.tell(t, map[string]string{keyThreshold: "{"})
	n.running.shows(t, 30*time.Second, `koord_rt_manager_config_problems\{key="`+keyThreshold+`"\} 1`)
	if err := n.c.Admin().Delete(t.Context(), strategies, -1); err != nil {
		t.Fatal(err)
	}
	for name, left := range map[string]string{documented: "null", "node-002": `{"cpuBurstStrategy":{"policy":"none"}}`, "node-003": "null"} {
		n.becomes(t, slos+"/"+name, "NodeSLO of "+name+" without a ConfigMap", func(o cluster.Object) bool { return o.Compact("spec") == left })
	}
	n.becomes(t, reports+"/node-002", "NodeMetric by default", func(o cluster.Object) bool {
		return o.Int("spec", "metricCollectPolicy", "reportIntervalSeconds") == 60 && o.Int("spec", "metricCollectPolicy", "aggregateDurationSeconds") == 300
	})
	n.running.shows(t, 60*time.Second, `koord_rt_manager_config_problems\{key="`+keyThreshold+`"\} 0`)
	n.tell(t, map[string]string{keyThreshold: thresholdConfig(65)})
	n.becomes(t, slos+"/"+documented, "NodeSLO by a ConfigMap that is made anew", func(o cluster.Object) bool { return percent(o, "cpuSuppressThresholdPercent") == 65 })
}

// anotherLife: what was decided for a node that has gone does not reach the one that has its name now. koord-manager takes just this refusal
// for that (ownership.Another), and any other for a failure.
func (n *simulated) anotherLife(t *testing.T) {
	patch := func(uid string) error {
		_, err := n.c.Admin().Patch(t.Context(), "/api/v1/nodes/node-002/status", cluster.MergePatch, cluster.Object{
			"metadata": map[string]any{"uid": uid}, "status": map[string]any{"allocatable": map[string]any{"example.com/of-another": "1"}},
		})
		return err
	}
	node, err := n.c.Admin().Get(t.Context(), "/api/v1/nodes/node-002")
	if err != nil {
		t.Fatal(err)
	}
	if err := patch("00000000-0000-4000-8000-000000000001"); !cluster.Refused(err, "Invalid") || !strings.Contains(err.Error(), "metadata.uid: Invalid value") {
		t.Errorf("a patch for another node of that name: %v", err)
	}
	if err := patch(node.Str("metadata", "uid")); err != nil {
		t.Errorf("the same for this node: %v", err)
	}
}

// gone: what was made for a node outlives it for as long as the manager was told, ten minutes by default, and goes then. What a user has made stays,
// also where the manager has seen its node first.
func (n *simulated) gone(t *testing.T) {
	nodes := []string{"node-003"}
	for i := range 10 {
		nodes = append(nodes, fmt.Sprintf("mine-%d", i))
	}
	ours, users := []string{slos + "/node-003"}, []string(nil)
	for _, node := range nodes {
		ours = append(ours, reports+"/"+node)
		if node == "node-003" {
			continue
		}
		slo := cluster.Object{"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": map[string]any{"name": node}}
		if _, err := n.c.Admin().Create(t.Context(), slos, slo); err != nil {
			t.Fatal(err)
		}
		n.node(t, node)
		users = append(users, slos+"/"+node)
	}
	for _, path := range ours {
		n.becomes(t, path, path+" of a node", func(cluster.Object) bool { return true })
	}
	begun := time.Now()
	for _, node := range nodes {
		if err := n.c.Admin().Delete(t.Context(), "/api/v1/nodes/"+node, -1); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range ours {
		eventually(t, 30*time.Second, func() error {
			o, err := n.c.Admin().Get(t.Context(), path)
			if cluster.Refused(err, "NotFound") {
				return nil
			}
			return fmt.Errorf("%s is there without its node: %v, %s", path, err, o.Compact("metadata"))
		})
		if took := time.Since(begun); took < orphanKept {
			t.Errorf("%s went %s after its node, want %s", path, took, orphanKept)
		}
	}
	t.Logf("all went within %s of their nodes", time.Since(begun).Round(time.Millisecond))
	for _, path := range users {
		if o, err := n.c.Admin().Get(t.Context(), path); err != nil {
			t.Errorf("a user's own NodeSLO: %v", err)
		} else if o.Str("metadata", "annotations", "koord-rt.dev/created-by") != "" {
			t.Errorf("a user's own NodeSLO is said to be ours: %s", o.Compact("metadata"))
		}
	}
}
