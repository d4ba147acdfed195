// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// TestClusterManager: the closed loop on one machine. koord-manager, with the rights of packaging/manifests, turns
// slo-controller-config, each key of it, into the node's NodeSLO and NodeMetric, reports of koordlet into batch and mid resources of the node, and
// a profile into a batch pod, which the stock scheduler places and koord-nri limits in the kernel; batch-memory is not raised while BE uses more
// than it has requested ([TestClusterManagerMeasured] has load come and go). koordlet is
// the account of packaging/manifests by a token of its node, held to it by their policy and by the webhook.
// A batch pod that requests more than suppression leaves its class is evicted, and those that it had left too little stay; so is one by
// which batch pods request too much of batch-cpu or batch-memory, one that computes on every CPU, and one that has agreed to go for memory;
// in danger one goes past its budget. A node that has evicted so many lends less.
// What somebody deletes of the manager's objects is made again, and the node keeps its strategy meanwhile. A broken ConfigMap, an API server that
// restarts, a leader that is killed, certificates that have ended and fifty others who
// write the same objects change nothing of that; without any manager pods start all the same. Certificates are renewed before they end, and no pod is made
// without admission meanwhile. A node stays amplified whatever its kubelet says. What a Deployment's containers should ask for is told from what koordlet has measured of them.
func TestClusterManager(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	m := manage(ctx, t)
	m.steps(t, []managedStep{
		{"strategy", m.config}, {"override", m.override}, {"late", m.late}, {"broken", m.broken}, {"collect", m.collect}, {"other keys", m.otherKeys}, {"deleted by hand", m.byHand}, {"lent", m.lent}, {"lines", m.lines}, {"not sound", m.unsound},
		{"admission", m.admission}, {"profile", m.profile}, {"booked", m.booked}, {"certificates ended", m.expire}, {"certificates renewed", m.renewed},
		{"server away", m.away}, {"leader killed", m.takeover}, {"secret lost", m.lostSecret}, {"secret made", m.renewed},
		{"certificates near their end", m.nearEnd}, {"recommended", m.recommends}, {"certificates renewed in time", m.inTime},
		{"starved", m.starved}, {"overbooked", m.overbooked}, {"overbooked memory", m.overbookedMemory}, {"overused", m.overused}, {"filled", m.filled}, {"evicted much", m.evictedMuch}, {"danger", m.inDanger}, {"off", m.off}, {"agent", m.agentWrites}, {"root quota", m.rootOfNode}, {"amplified", m.amplified}, {"rights", m.managerRights}, {"agent's rights", m.agentRights}, {"crowd", m.crowded}, {"no manager", m.unadmitted},
	})
}

// TestClusterManagerMeasured is what measures the node's own CPUs of the loop: load takes CPU from the best-effort class and its pods in the kernel and
// batch resources from the node while certificates have ended, and both come back, the latter by a manager that has taken over.
func TestClusterManagerMeasured(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	m := manage(ctx, t)
	m.steps(t, []managedStep{
		{"strategy", m.config}, {"lent", m.lent}, {"admission", m.admission}, {"profile", m.profile},
		{"certificates ended", m.expire}, {"load", m.load}, {"certificates renewed", m.renewed},
		{"second replica", m.second}, {"leader killed", m.takeover}, {"given back", m.givenBack},
	})
}

type managedStep struct {
	name string
	test func(*testing.T)
}

// steps runs one after the other, as each goes on from where the one before has ended.
func (m *managed) steps(t *testing.T, all []managedStep) {
	t.Helper()
	for _, s := range all {
		if !t.Run(s.name, s.test) {
			return
		}
	}
	m.up(t)
}

// manage starts a cluster of one node with all that is managed.
func manage(ctx context.Context, t *testing.T) *managed {
	t.Helper()
	h := startHostWith(ctx, t, host.Options{}, parts.Kubelet, parts.KubeScheduler)
	log := newAuditOf(t, filepath.Join(h.Dir, "audit"), loopPolicy)
	c := start(t, filepath.Join(h.Dir, "cluster"), log.flags()...)
	k, err := c.StartKubelet(ctx, cluster.KubeletOptions{Runtime: h.Socket, CgroupRoot: h.Cgroup, Config: managers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	tree, err := cgroups.Detect()
	if err != nil {
		t.Fatal(err)
	}
	m := &managed{governed: &governed{colocated: &colocated{c: c, k: k, h: h, tree: tree}, audit: log, outer: t, bound: true}}
	m.begin(ctx, t)
	return m
}

// managed is a node with koordlet and koord-nri in a cluster with koord-manager.
type managed struct {
	*governed
	front    *front
	nri      *process // koord-nri
	replicas []*replica
	web      cluster.Object // an LS pod that may use a CPU
	turn     *turn          // of the certificates
	loaded   share          // of the node's CPUs while web computed
}

// begin installs what is needed and starts the node's programs and pods.
func (m *managed) begin(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := m.c.ApplyFolder(ctx, definitions); err != nil {
		t.Fatal(err)
	}
	if _, err := m.c.Admin().Apply(ctx, "lab", false, []byte(read(t, "testdata/koordlet/install/priorities.yaml"))); err != nil {
		t.Fatal(err)
	}
	m.install(ctx, t)
	if err := m.c.InstallAgent(ctx, filepath.Dir(manifest(""))); err != nil {
		t.Fatal(err)
	}
	m.expireBefore(ctx, t)
	if err := m.c.Namespace(ctx, "batch"); err != nil {
		t.Fatal(err)
	}
	m.governed.configure(t)
	m.plugin(t)
	m.governed.start(t)
	m.front = newFront(t, nil)
	m.apply(t, "pods.yaml")
	m.create(t, "web", "labels: {koordinator.sh/qosClass: LS}", `resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: "1", memory: 64Mi}}`)
	m.ls, m.be, m.top, m.web = m.ready(t, "ls"), m.ready(t, "be-low"), m.ready(t, "be-kept"), m.ready(t, "web")
	m.pin(t, m.ls, other)
}

// plugin starts koord-nri beside koordlet, on the same folders.
func (m *managed) plugin(t *testing.T) {
	t.Helper()
	at := func(name string) string { return filepath.Join(m.dir, name) }
	config := map[string]any{
		"apiVersion": "koord-rt.dev/v1alpha1", "kind": "NRIConfig", "runDir": at("run"), "stateDir": at("state"), "strategyFile": at("strategy.yaml"),
		"host":     map[string]any{"kubepodsRoot": "/" + m.h.Cgroup, "cdiDirs": []string{m.h.CDI}},
		"deadline": "1900ms", // the longest there is: time runs on while a decision gets no CPU
		"socket":   m.h.NRISocket, "metrics": map[string]any{"address": "unix:" + at("nri.sock")},
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("nri.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	m.nri = startProgram(t, at("nri.log"), bin("koord-nri"), "--config", at("nri.yaml"))
}

// slo reads the node's NodeSLO once it is as it should be.
func (m *managed) slo(t *testing.T, limit time.Duration, what string, ok func(cluster.Object) bool) cluster.Object {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), max(limit, soon))
	defer cancel()
	got, err := m.c.Admin().Wait(ctx, slos+"/"+m.k.Node, what, func(o cluster.Object) bool { return o != nil && ok(o) })
	if err != nil {
		t.Fatalf("%v; spec %s", err, got.Compact("spec"))
	}
	return got
}

// percent is a field of the NodeSLO's resourceUsedThresholdWithBE.
func percent(o cluster.Object, field string) int {
	return o.Int("spec", "resourceUsedThresholdWithBE", field)
}

// thresholdConfig is resource-threshold-config by which the best-effort class gets 50 to high percent of the node.
func thresholdConfig(high int) string {
	return fmt.Sprintf(`{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": %d,
  "cpuSuppressMinPercent": 50, "memoryEvictThresholdPercent": 100}}`, high)
}

const (
	keyThreshold  = "resource-threshold-config"
	keyBurst      = "cpu-burst-config"
	keyColocation = "colocation-config"
)

func burstConfig(percent int) string {
	return fmt.Sprintf(`{"clusterStrategy": {"policy": "cpuBurstOnly", "cpuBurstPercent": %d}}`, percent)
}

// config: without a ConfigMap the objects of the node are there and say nothing; one that is made is in the kernel seconds later, and within the same
// seconds the NodeSLO, of which the manager alone has written the spec, says so.
func (m *managed) config(t *testing.T) {
	isConfined(t, m.replica(t).cmd.Process.Pid)
	m.slo(t, 60*time.Second, "NodeSLO of a cluster without a strategy", func(o cluster.Object) bool { return percent(o, "cpuSuppressThresholdPercent") == 0 })
	if got, err := m.quota(); err != nil || got != -1 {
		t.Fatalf("quota of the best-effort class without a strategy: %d, %v", got, err)
	}
	begun := time.Now()
	if err := mostly(3, 10*time.Second, func(again bool) time.Duration {
		if again {
			m.follows(t, 60*time.Second, 64)
			eventually(t, 60*time.Second, func() error {
				got, err := m.quota()
				if err == nil && got != -1 {
					err = fmt.Errorf("quota of the best-effort class without suppression: %d", got)
				}
				return err
			})
		}
		return m.inKernel(t)
	}); err != nil {
		t.Errorf("until the ConfigMap was in the kernel, and the NodeSLO's status said so: %v", err)
	}
	told := m.inForce(t)
	m.described(t, told, "cpu-suppress")
	if at, err := time.Parse(time.RFC3339, told.Str("status", "nodeMetric", "updateTime")); err != nil || at.Before(begun.Truncate(time.Second)) {
		t.Errorf("in force since %s, %v, and the ConfigMap was made at %s", at, err, begun)
	}
	if got := writers(told); !slices.Equal(got, []string{"koord-manager", "koordlet status"}) {
		t.Errorf("the NodeSLO was written by %q, want the manager and koordlet", got)
	}
}

// writers are who has written what stands in an object, each with the subresource by which it did.
func writers(o cluster.Object) (out []string) {
	list, _ := o.At("metadata", "managedFields").([]any)
	for i := range list {
		out = append(out, strings.TrimSpace(o.Str("metadata", "managedFields", i, "manager")+" "+o.Str("metadata", "managedFields", i, "subresource")))
	}
	slices.Sort(out)
	return out
}

// inKernel is how long a ConfigMap with a strategy takes to the quota of the best-effort class, which has none, and to the NodeSLO's status, which says
// that it is there.
func (m *managed) inKernel(t *testing.T) time.Duration {
	t.Helper()
	m.tell(t, map[string]string{keyThreshold: thresholdConfig(65), keyColocation: collectConfig})
	begun := time.Now()
	m.slo(t, 60*time.Second, "NodeSLO after the ConfigMap", func(o cluster.Object) bool { return percent(o, "cpuSuppressThresholdPercent") == 65 })
	written := time.Since(begun)
	m.quotaWithin(t, 50, 65)
	kernel := time.Since(begun)
	m.slo(t, 60*time.Second, "NodeSLO whose status says that it is in force", cluster.Object.InForce)
	all := time.Since(begun)
	t.Logf("ConfigMap in the NodeSLO after %s, in the kernel after %s, in the NodeSLO's status after %s",
		written.Round(time.Millisecond), kernel.Round(time.Millisecond), all.Round(time.Millisecond))
	return all
}

// override: what a user has written of the NodeSLO is an override for the node, which changes of the ConfigMap leave alone, until the
// user takes it back.
func (m *managed) override(t *testing.T) {
	m.patch(t, threshold(map[string]any{"cpuSuppressThresholdPercent": 30, "cpuSuppressMinPercent": 0}))
	m.quotaWithin(t, 0, 30)
	m.tell(t, map[string]string{keyThreshold: thresholdConfig(60), keyBurst: burstConfig(1000)})
	got := m.slo(t, 60*time.Second, "NodeSLO with the new burst", func(o cluster.Object) bool { return o.Str("spec", "cpuBurstStrategy", "policy") == "cpuBurstOnly" })
	if percent(got, "cpuSuppressThresholdPercent") != 30 || percent(got, "memoryEvictThresholdPercent") != 100 {
		t.Errorf("spec after the change: %s", got.Compact("spec"))
	}
	m.holds(t, m.ls, "cpu", "cpu.cfs_burst_us=10000", "cpu.max.burst=10000")
	m.quotaWithin(t, 0, 30)
	m.patch(t, threshold(map[string]any{"cpuSuppressThresholdPercent": nil, "cpuSuppressMinPercent": nil}))
	m.slo(t, 60*time.Second, "NodeSLO without the override", func(o cluster.Object) bool {
		return percent(o, "cpuSuppressThresholdPercent") == 60 && percent(o, "cpuSuppressMinPercent") == 50
	})
	m.quotaWithin(t, 50, 60)
}

// broken: a key that cannot be read keeps what it said before, and says so; the other keys are followed.
func (m *managed) broken(t *testing.T) {
	m.tell(t, map[string]string{keyThreshold: `{"clusterStrategy": {"cpuSuppressThresholdPercent": "high"}}`, keyBurst: burstConfig(500)})
	got := m.slo(t, 60*time.Second, "NodeSLO with the key that is right", func(o cluster.Object) bool { return o.Int("spec", "cpuBurstStrategy", "cpuBurstPercent") == 500 })
	if percent(got, "cpuSuppressThresholdPercent") != 60 {
		t.Errorf("spec by a broken ConfigMap: %s", got.Compact("spec"))
	}
	problems := `koord_rt_manager_config_problems\{key="` + keyThreshold + `"\} `
	m.replicas[0].shows(t, 60*time.Second, problems+"1")
	eventually(t, 60*time.Second, func() error {
		list, err := m.c.Admin().Items(t.Context(), "/apis/events.k8s.io/v1/namespaces/"+system+"/events")
		if err != nil {
			return err
		}
		var all []string
		for _, e := range list {
			note := e.Str("note")
			if e.Str("reason") == "SLOCfgUnmarshalFailed" && e.Str("regarding", "name") == "slo-controller-config" &&
				strings.Contains(note, keyThreshold) && strings.Contains(note, "line 1") && strings.Contains(note, "cpuSuppressThresholdPercent") {
				return nil
			}
			all = append(all, e.Str("reason")+": "+note)
		}
		return fmt.Errorf("no event names key, line and field: %q", all)
	})
	m.tell(t, map[string]string{keyThreshold: thresholdConfig(55)})
	m.slo(t, 60*time.Second, "NodeSLO after the repair", func(o cluster.Object) bool { return percent(o, "cpuSuppressThresholdPercent") == 55 })
	m.replicas[0].shows(t, 60*time.Second, problems+"0")
}

// collectConfig is colocation-config with what nodes are to measure, and nothing lent.
const collectConfig = `{"enable": false, "metricAggregateDurationSeconds": 60, "metricReportIntervalSeconds": 30,
  "metricAggregatePolicy": {"durations": ["1m0s", "2m0s"]}}`

// collect: the node's NodeMetric tells it what to measure.
func (m *managed) collect(t *testing.T) {
	got, err := m.c.Admin().Get(t.Context(), reports+"/"+m.k.Node)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"aggregateDurationSeconds":60,"nodeAggregatePolicy":{"durations":["1m0s","2m0s"]},` +
		`"nodeMemoryCollectPolicy":"usageWithoutPageCache","reportIntervalSeconds":30}`
	if policy := got.Compact("spec", "metricCollectPolicy"); policy != want {
		t.Errorf("collect policy %s, want %s", policy, want)
	}
}
