// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// TestClusterNodeKoordlet: the node agent between a real API server and a real kubelet, with the rights of
// testdata/koordlet/install/role.yaml: what a NodeSLO and the Node say reaches the kernel and outlives server and kubelet, a resize is followed, what the node
// uses is reported once an interval, and at once to a NodeMetric that is another one, a value that the kernel does not take is named, what is learned survives kill
// -9, and memory is got back by evictions that budgets may refuse, unless the node is in danger. All of it is read from the kernel, from the API server's
// objects, or from its audit log.
func TestClusterNodeKoordlet(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	n := govern(ctx, t)
	n.mixed(t)
	n.boots(t)
	for _, s := range []struct {
		name string
		test func(*testing.T)
	}{
		{"strategy", n.strategy}, {"ratio", n.ratio}, {"resized", n.resized}, {"pinned", n.pinned}, {"server away", n.serverAway}, {"kubelet away", n.kubeletAway}, {"strategy goes", n.strategyGoes},
		{"report", n.report}, {"answers", n.answers}, {"strategy again", n.opens}, {"killed", n.killed}, {"stop", n.stop}, {"evict", n.evict}, {"danger", n.danger}, {"overdue", n.overdue}, {"writes", n.writes}, {"cut", n.cut}, {"made anew", n.madeAnew}, {"rights", n.rights},
	} {
		if !t.Run(s.name, s.test) {
			return // each goes on from where the one before has ended
		}
	}
	n.up(t)
}

// govern starts a node in a cluster, with the pods of pods.yaml, and configures its koordlet.
func govern(ctx context.Context, t *testing.T) *governed {
	t.Helper()
	h := startHost(ctx, t, parts.Kubelet)
	log := newAudit(t, filepath.Join(h.Dir, "audit"))
	c := start(t, filepath.Join(h.Dir, "cluster"), log.flags()...)
	k, err := c.StartKubelet(ctx, cluster.KubeletOptions{
		Runtime: h.Socket, CgroupRoot: h.Cgroup, Config: managers, Labels: map[string]string{"node.koordinator.sh/enable-numa-reservation": "true"},
	})
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
	n := &governed{colocated: &colocated{c: c, k: k, h: h, tree: tree}, audit: log, outer: t}
	n.prepare(ctx, t)
	n.configure(t)
	return n
}

// governed is a node with a koordlet.
type governed struct {
	*colocated
	audit       *audit
	bound       bool           // koordlet is the account of packaging/manifests, by a token of its node
	ls, be, top cluster.Object // the pods ls, be-low and be-kept
	prod        cluster.Object // asks for much and uses nothing
	victim      cluster.Object // computes now and then
	since       float64        // koordlet's tick since which victim is measured where it is
	agent       *process
	outer       *testing.T  // of the whole test
	dir         string      // koordlet's configuration, state and log
	kubeconfig  string      // by which koordlet finds the API server
	metrics     string      // koordlet's socket
	app         string      // the CPU controller's cgroup of a program outside of Kubernetes
	away        []span      // while the API server was gone or starting
	back        time.Time   // when it was ready again for the first time
	pinnedFor   span        // the life of the pod that has a CPU of its own
	births      []time.Time // of every start of koordlet but the first
	again       time.Time   // when koordlet was started again after kill -9
}

type span struct{ from, to time.Time }

// mib is in bytes.
const mib = 1 << 20

const (
	slos    = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
	reports = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
)

// up fails unless koordlet and kubelet still run.
func (n *governed) up(t *testing.T) {
	t.Helper()
	select {
	case <-n.agent.done:
		t.Fatalf("koordlet ended: %s", n.agent.cmd.ProcessState)
	default:
	}
	if _, err := n.k.Metrics(t.Context()); err != nil {
		t.Errorf("the kubelet does not answer: %v", err)
	}
}

// quota is that of the best-effort class in µs per 100 ms, as the kernel has it; -1 for none.
func (n *governed) quota() (int, error) {
	file, none := n.quotaFile()
	text, err := cgroups.Read(n.class(), file)
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(text, " ")
	if first == none {
		return -1, nil
	}
	return strconv.Atoi(first)
}

// quotaFile is where a quota stands, and how none is written there.
func (n *governed) quotaFile() (file, none string) {
	if n.tree.V2() {
		return "cpu.max", "max"
	}
	return "cpu.cfs_quota_us", "-1"
}

// class is the cgroup of the best-effort class.
func (n *governed) class() string {
	return filepath.Join(n.mount("cpu"), n.k.CgroupRoot, "kubepods", "besteffort")
}

// quotaWithin waits for a quota between two parts of the node, in percent.
func (n *governed) quotaWithin(t *testing.T, low, high int) {
	t.Helper()
	eventually(t, 60*time.Second, func() error { return n.quotaIs(low, high) })
}

// quotaIs is an error unless the quota lies between two parts of the node, in percent.
func (n *governed) quotaIs(low, high int) error {
	whole := runtime.NumCPU() * 100000
	got, err := n.quota()
	if err == nil && (got < max(whole*low/100, 2000) || got > whole*high/100) {
		err = fmt.Errorf("quota of the best-effort class is %d, want %d %% to %d %% of %d", got, low, high, whole)
	}
	return err
}

// idle waits for cpu.idle of the best-effort pods' cgroups, and of the application's.
func (n *governed) idle(t *testing.T, want string) {
	t.Helper()
	for _, dir := range []string{n.class() + "/pod" + n.be.Str("metadata", "uid"), n.class() + "/pod" + n.top.Str("metadata", "uid"), n.app} {
		eventually(t, 15*time.Second, func() error {
			got, err := cgroups.Read(dir, "cpu.idle")
			if err == nil && got != want {
				err = fmt.Errorf("cpu.idle of %s is %s, want %s", dir, got, want)
			}
			return err
		})
	}
}

// patch changes the NodeSLO's spec.
func (n *governed) patch(t *testing.T, spec map[string]any) {
	t.Helper()
	if _, err := n.c.Admin().Patch(t.Context(), slos+"/"+n.k.Node, cluster.MergePatch, map[string]any{"spec": spec}); err != nil {
		t.Fatal(err)
	}
}

// threshold is a part of resourceUsedThresholdWithBE.
func threshold(fields map[string]any) map[string]any {
	return map[string]any{"resourceUsedThresholdWithBE": fields}
}

// inForce waits until the NodeSLO's status says that its newest spec is.
func (n *governed) inForce(t *testing.T) cluster.Object {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	got, err := n.c.Admin().Wait(ctx, slos+"/"+n.k.Node, "status of the NodeSLO", cluster.Object.InForce)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// strategy: nothing is in force without a NodeSLO; one that is made, and one that is changed, is in force seconds later.
func (n *governed) strategy(t *testing.T) {
	eventually(t, 20*time.Second, func() error { // koordlet has asked and found none
		if len(n.audit.calls(t, func(c *call) bool { return c.what() == "watch nodeslos" })) == 0 {
			return fmt.Errorf("koordlet does not follow its NodeSLO")
		}
		return nil
	})
	if got, err := n.quota(); err != nil || got != -1 {
		t.Fatalf("quota of the best-effort class without a NodeSLO: %d, %v", got, err)
	}
	spec := threshold(map[string]any{
		"enable": true, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 65, "cpuSuppressMinPercent": 50,
		"memoryEvictThresholdPercent": 100,
	})
	maps.Copy(spec, map[string]any{
		"resourceQOSStrategy": map[string]any{"beClass": map[string]any{"cpuQOS": map[string]any{"enable": true, "groupIdentity": -1}}},
		"cpuBurstStrategy":    map[string]any{"policy": "cpuBurstOnly", "cpuBurstPercent": 1000},
		"hostApplications": []any{map[string]any{
			"name": "backup", "qos": "BE", "priority": "koord-batch", "cgroupPath": map[string]any{"relativePath": n.h.Cgroup + "/app"},
		}},
	})
	object := cluster.Object{
		"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": map[string]any{"name": n.k.Node}, "spec": spec,
	}
	if _, err := n.c.Admin().Create(t.Context(), slos, object); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	n.quotaWithin(t, 50, 65)
	t.Logf("the NodeSLO is in the kernel after %s", time.Since(begun).Round(time.Millisecond))
	n.idle(t, "1")
	n.holds(t, n.ls, "cpu", "cpu.cfs_burst_us=10000", "cpu.max.burst=10000")
	n.described(t, n.inForce(t), "cpu-burst")
	n.spelled(t)
	n.patch(t, threshold(map[string]any{"cpuSuppressThresholdPercent": 30, "cpuSuppressMinPercent": nil}))
	n.quotaWithin(t, 0, 30)
	if got := n.inForce(t); got.Int("status", "observedGeneration") < 4 {
		t.Errorf("status after the change: %s", got.Compact("status"))
	}
	n.overridden(t, "resourceUsedThresholdWithBE.cpuSuppressThresholdPercent", "30")
}

// spelled: the documents' spelling (M5) alone has switch and threshold for a while, and they are in force as the canonical ones: unread, they
// would leave no quota, or one by the default.
func (n *governed) spelled(t *testing.T) {
	t.Helper()
	spec := threshold(map[string]any{"enable": nil, "cpuSuppressThresholdPercent": nil, "cpuSuppressMinPercent": nil})
	spec["resourceThresholdStrategy"] = map[string]any{"enable": true, "thresholds": map[string]any{"cpu-suppress-percent": 10}}
	n.patch(t, spec)
	n.quotaWithin(t, 0, 10) // before, it was 50 at least
	n.inForce(t)
	spec = threshold(map[string]any{"enable": true, "cpuSuppressThresholdPercent": 65, "cpuSuppressMinPercent": 50})
	spec["resourceThresholdStrategy"] = nil
	n.patch(t, spec)
	n.quotaWithin(t, 50, 65)
	n.inForce(t)
}

// conditionsOf are all conditions of a NodeSLO that is in force, whatever it asks for: Applied, the features, and those loops that no feature stands for.
var conditionsOf = []string{
	"Applied", "batch", "blkio", "cfs-quota-burst", "core-sched", "cpu-burst", "cpu-identity", "cpu-normalization", "cpu-suppress", "cpuset", "devices",
	"eviction", "interference", "llc", "memory-qos", "memory-reclaim", "network-qos", "oom-score",
}

// described: the status has these conditions, each once, in the form of metav1.Condition and of the newest generation. active is a feature
// that the strategy uses.
func (n *governed) described(t *testing.T, slo cluster.Object, active string) {
	t.Helper()
	if slo.Condition(active) != "True" || slo.Str("status", "nodeMetric", "updateTime") == "" {
		t.Errorf("status of the NodeSLO: %s", slo.Compact("status"))
	}
	list, _ := slo.At("status", "conditions").([]any)
	var all []string
	for i := range list {
		all = append(all, slo.Str("status", "conditions", i, "type"))
		field := func(name string) string { return slo.Str("status", "conditions", i, name) }
		_, err := time.Parse(time.RFC3339, field("lastTransitionTime"))
		if err != nil || field("type") == "" || field("reason") == "" || slo.Int("status", "conditions", i, "observedGeneration") != slo.Int("metadata", "generation") {
			t.Errorf("condition %s", slo.Compact("status", "conditions", i))
		}
	}
	slices.Sort(all)
	if !slices.Equal(all, conditionsOf) {
		t.Errorf("conditions of the NodeSLO are %q, want %q", all, conditionsOf)
	}
}

// kubeletAway: the pods come from the API server while the kubelet is down, what is in force stays in force, and it does not
// hinder the kubelet's start.
func (n *governed) kubeletAway(t *testing.T) {
	starts := n.kubeletEnds(t)
	n.quotaWithin(t, 0, 20)
	ended := n.podWatches(t, "ResponseComplete")
	starts()
	eventually(t, 30*time.Second, func() error {
		if n.podWatches(t, "ResponseComplete") == ended {
			return fmt.Errorf("koordlet follows the pods at the API server as well as at the kubelet")
		}
		return nil
	})
	n.quotaWithin(t, 0, 20)
	n.idle(t, "1")
	n.holds(t, n.ls, "cpu", "cpu.cfs_burst_us=10000", "cpu.max.burst=10000")
	n.up(t)
}

// kubeletEnds ends the kubelet and waits until koordlet has its pods from the API server; the result brings it back, and waits until they
// are the kubelet's again.
func (n *governed) kubeletEnds(t *testing.T) (starts func()) {
	t.Helper()
	begun := n.podWatches(t, "ResponseStarted")
	if err := n.k.End(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	n.podsFollowed(t, begun)
	return func() {
		t.Helper()
		if err := n.k.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.sees(t, `koord_rt_koordlet_source_state\{source="pods",state="active"\} 1`) // degraded while they come from the API server
	}
}

// podWatches counts koordlet's watches of pods that have come so far. One that the API server has refused, as it does in its first moments, is none.
func (n *governed) podWatches(t *testing.T, stage string) int {
	t.Helper()
	return len(n.audit.calls(t, func(c *call) bool {
		return c.what() == "watch pods" && c.Stage == stage && c.Response.Code == http.StatusOK
	}))
}

// podsFollowed waits until koordlet has begun another watch of pods than these.
func (n *governed) podsFollowed(t *testing.T, begun int) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		if n.podWatches(t, "ResponseStarted") == begun {
			return fmt.Errorf("koordlet does not follow the pods at the API server")
		}
		return nil
	})
}

// strategyGoes: a spec that sets nothing leaves nothing of ours in the kernel; the application stays declared.
func (n *governed) strategyGoes(t *testing.T) {
	n.patch(t, map[string]any{"resourceUsedThresholdWithBE": nil, "resourceQOSStrategy": nil, "cpuBurstStrategy": nil})
	eventually(t, 60*time.Second, func() error {
		got, err := n.quota()
		if err == nil && got != -1 {
			err = fmt.Errorf("quota of the best-effort class is still %d", got)
		}
		return err
	})
	n.idle(t, "0")
	n.holds(t, n.ls, "cpu", "cpu.cfs_burst_us=0", "cpu.max.burst=0")
	n.saidOnce(t, n.inForce(t).Int("status", "observedGeneration"))
}

var inForceLine = regexp.MustCompile(`(?m)msg="NodeSLO is in force" generation=(\d+) changed=(.*)$`)

// saidOnce: koordlet's log has one line for each change that was in force, with what has changed, whoever was away meanwhile (M-1
// of the documents). A new life begins with a line for what it has found in force.
func (n *governed) saidOnce(t *testing.T, generations int) {
	t.Helper()
	eventually(t, 10*time.Second, func() error {
		all := inForceLine.FindAllStringSubmatch(read(t, filepath.Join(n.dir, "koordlet.log")), -1)
		said := len(all)
		all = slices.CompactFunc(all, func(a, b []string) bool { return a[1] == b[1] })
		if again := said - len(all); again > len(n.births) {
			return fmt.Errorf("%d generations are said twice, in %d lives after the first", again, len(n.births))
		}
		if len(all) != generations {
			return fmt.Errorf("%d lines for %d generations: %q", len(all), generations, all)
		}
		for i, m := range all {
			if m[1] != strconv.Itoa(i+1) || !strings.Contains(m[2], "resourceUsedThresholdWithBE") {
				return fmt.Errorf("line %d: %q", i, m[0])
			}
		}
		return nil
	})
}
