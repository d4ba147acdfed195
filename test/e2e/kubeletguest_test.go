// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"context"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/parts"
	"github.com/koord-rt/koord-rt/test/lab/vm"
)

// served is a node with a real kubelet and an API server, on cgroup v2, which the hosts of the lab do not have.
type served struct {
	*rig
	c *cluster.Cluster
	k *cluster.Kubelet
	a *agent
}

// TestGuestKubelet: koord-nri and koordlet beside a real kubelet on cgroup v2. A NodeSLO is in force in the containers that this kubelet
// makes, resizes and finds again after it was killed: none of its own writes is refused for what we have set, and it starts no container
// anew. What its pods use is reported, and values whose strategy goes leave the kernel. Best effort yields, gives back and goes as the kernel's
// counts and the API server's pods say, and beside a CPU manager that is static. koord-manager's ConfigMap is followed as a NodeSLO by hand is, and the
// node lends what its reports leave. What a kubelet protects itself, and the memory nodes that it chooses, are left to it. A clock that is set changes
// none of it.
func TestGuestKubelet(t *testing.T) {
	if !cgroupV2() || runtime.NumCPU() != 8 {
		t.Fatalf("the figures are for cgroup v2 and 8 CPUs, here are %d", runtime.NumCPU())
	}
	n := newServed(t)
	for _, s := range []struct {
		name string
		do   func()
	}{
		{"Created", n.makes}, {"Resized", n.resized}, {"Killed", n.killed}, {"Memory", n.memory}, {"Caches", n.caches}, {"Unannotated", n.unannotated},
		{"StrategyGoes", n.strategyGoes}, {"Reported", n.reported},
		{"Suppressed", n.suppressed}, {"Reclaimed", n.reclaimed}, {"Evicted", n.evicted}, {"Starved", n.starved}, {"Static", n.static},
		{"Manager", n.managed},
		{"TieredReservation", n.tiered},
		{"Clock", n.clock}, // last: what is recorded two hours on would be of the others' future
	} {
		if !t.Run(s.name, func(t *testing.T) {
			outer, begun := n.t, time.Now()
			n.t = t
			defer func() { n.t = outer }()
			s.do()
			n.tell("%s took %s", s.name, time.Since(begun).Round(time.Second))
		}) {
			return // each goes on from where the one before has ended
		}
	}
	n.leftNothing()
}

// leftNothing: whatever koordlet would have in a pod or a container, koord-nri has seen to: else koordlet mends it after 20 s.
func (n *served) leftNothing() {
	n.t.Helper()
	records, _, err := ledger.Read(n.run, "koordlet")
	if err != nil {
		n.t.Fatal(err)
	}
	for i := range records {
		if r := &records[i]; r.Target.Pod != "" && len(r.Written) > 0 {
			n.t.Errorf("koord-nri has left %s of %s, which koordlet wrote from %q to %q: %s", r.Knob, r.Target, r.Original, r.Written, r.Reason)
		}
	}
}

// withServed adds what TestGuestKubelet needs to the files of a guest that runs it.
func withServed(t *testing.T, files map[string]string, given, match string) (map[string]string, string) {
	t.Helper()
	if !strings.Contains(match, "Kubelet") {
		return files, given
	}
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := filepath.Abs("../../packaging/crds")
	if err != nil {
		t.Fatal(err)
	}
	files = maps.Clone(files)
	for _, name := range servedKinds {
		files[filepath.Join(definitions, name)] = filepath.Join(definitionsDir, name)
	}
	carryManager(t, files)
	more, err := vm.Carry(t.Context(), cache, files, parts.Etcd, parts.KubeAPIServer, parts.Kubelet, parts.StressNG)
	if err != nil {
		t.Fatal(err)
	}
	return files, given + more
}

// servedKinds are the manifests of the kinds that koordlet needs.
var servedKinds = []string{
	"slo.koordinator.sh_nodeslos.yaml", "slo.koordinator.sh_nodemetrics.yaml", "topology.node.k8s.io_noderesourcetopologies.yaml",
}

// priorities are two of the band koord-batch.
const priorities = `
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: batch-low}, value: 5100}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: batch-high}, value: 5900}
`

// definitionsDir is where a guest has the manifests of our kinds.
const definitionsDir = "/disk/crds"

const (
	servedAddress = "192.0.2.1" // TEST-NET-1: a kubelet refuses a loopback address
	servedNode    = "node0"
)

func newServed(t *testing.T) *served {
	t.Helper()
	ctx := t.Context()
	if out, err := exec.CommandContext(ctx, "ip", "addr", "add", servedAddress+"/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("give the guest an address: %v: %s", err, out)
	}
	n := &served{rig: newRig(t, rigOptions{})}
	// Pods are in the node's network; without a network for others containerd calls itself not ready.
	if err := cluster.WriteCNI(filepath.Join(n.host.Dir, "cni"), n.host.Dir); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	var err error
	n.c, err = cluster.Start(ctx, cluster.Options{
		Dir:           filepath.Join(n.host.Dir, "cluster"),
		APIServerArgs: []string{"--advertise-address=" + servedAddress}, // else it looks for a default route
		Limit:         patience(3 * time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.c.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("the API server is ready after %s", time.Since(begun).Round(time.Second))
	for _, name := range servedKinds {
		n.define(n.text(filepath.Join(definitionsDir, name)))
	}
	n.define(priorities)
	if err := n.c.Namespace(ctx, "work"); err != nil {
		t.Fatal(err)
	}
	at := n.base()["host"].(map[string]any)
	at["kubeletCPUManagerState"], at["kubeletMemoryManagerState"] = n.c.CPUState(servedNode), n.c.MemoryState(servedNode)
	n.extra = map[string]any{"host": at}
	n.up("", nil)
	begun = time.Now()
	n.k, err = n.c.StartKubelet(ctx, cluster.KubeletOptions{
		Runtime: n.host.Socket, CgroupRoot: n.host.Cgroup, Node: servedNode,
		Config: map[string]any{
			"nodeStatusUpdateFrequency": "5s",                        // so long it waits for the API server's answer, too
			"tlsCertFile":               "", "tlsPrivateKeyFile": "", // it signs its certificate itself, as many do
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.k.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the kubelet's log:\n%s", tail(n.text(n.k.Log), 4000))
		}
	})
	t.Logf("the node is ready after %s", time.Since(begun).Round(time.Second))
	n.startAgent()
	return n
}

func (n *served) text(file string) string {
	n.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

// define has the API server take objects.
func (n *served) define(objects string) {
	n.t.Helper()
	if _, err := n.c.Admin().Apply(n.t.Context(), "lab", true, []byte(objects)); err != nil {
		n.t.Fatal(err)
	}
}

// startAgent starts koordlet, which reads pods from this kubelet and its strategy from this API server.
func (n *served) startAgent() {
	n.t.Helper()
	kubeconfig, err := n.c.Kubeconfig("koordlet", "system:masters")
	if err != nil {
		n.t.Fatal(err)
	}
	base := strings.TrimSuffix(kubeconfig, ".kubeconfig")
	n.extra["nodeName"] = n.k.Node
	n.a = n.newAgent()
	// The kubelet has signed its certificate itself, and koordlet is not told where that lies: it stands where a node has it.
	trusted := config.DefaultKoordlet().Kubelet.CAFile
	if err := os.MkdirAll(filepath.Dir(trusted), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(n.k.Root, "pki", "kubelet.crt"), trusted); err != nil {
		n.t.Fatal(err)
	}
	n.a.kubelet = map[string]any{
		"endpoint": "https://" + net.JoinHostPort(n.k.IP, strconv.Itoa(n.k.Port)),
		"certFile": base + ".crt", "keyFile": base + ".key", "interval": "1s",
	}
	n.a.server = map[string]any{"kubeconfig": kubeconfig}
	n.a.configure(nil)
	n.a.start()
}

const (
	workPods    = "/api/v1/namespaces/work/pods/"
	nodeSLOs    = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
	nodeMetrics = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
)

// The pods' values under the strategy of makes.
var (
	lsHas   = []string{"cpu.max=50000 100000", "cpu.max.burst=50000", "pod cpu.max.burst=50000", "cpuset.cpus=0-6", "cpu.idle=0"}
	beHas   = []string{"cpu.max=50000 100000", "memory.max=67108864", "pod cpu.max=50000 100000", "pod memory.max=67108864", "cpuset.cpus=0-6"}
	idleHas = []string{"memory.max=67108864", "pod memory.max=67108864", "pod cpu.idle=1", "cpu.idle=0", "cpuset.cpus=0-6"}
	lsrHas  = []string{"cpu.max=max 100000", "cpuset.cpus=7", "pod cpu.max=max 100000"}
)

// makes: what a NodeSLO says is in force in the containers of a kubelet.
func (n *served) makes() {
	n.t.Helper()
	slo := cluster.Object{
		"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": map[string]any{"name": n.k.Node},
		"spec": map[string]any{
			"resourceQOSStrategy": map[string]any{
				"lsrClass": map[string]any{"memoryQOS": lsrMemory},
				"beClass":  map[string]any{"memoryQOS": beMemory, "cpuQOS": map[string]any{"enable": true, "groupIdentity": -1}},
			},
			"cpuBurstStrategy": map[string]any{"policy": "cpuBurstOnly", "cpuBurstPercent": 1000},
		},
	}
	if _, err := n.c.Admin().Create(n.t.Context(), nodeSLOs, slo); err != nil {
		n.t.Fatal(err)
	}
	n.inForce()
	main, volume := n.stressed(taking(lsrHolds)) // before anything else: reports are of the last minute
	n.make("lsr", `labels: {koordinator.sh/qosClass: LSR}, annotations: {scheduling.koordinator.sh/resource-status: '{"cpuset":"7"}'}`,
		"resources: {requests: {cpu: 1, memory: 64Mi}, limits: {cpu: 1, memory: 64Mi}}, "+main, volume)
	n.make("ls", "labels: {koordinator.sh/qosClass: LS}", "resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 500m, memory: 128Mi}}")
	n.batch("be", "batch-high", "", `"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"`, "")
	// Without batch-cpu its weight counts for nothing: cpu.idle.
	n.batch("idle", "batch-high", `koordinator.sh/priority: "5200"`, `"kubernetes.io/batch-memory":"64Mi"`, "")
	n.stand()
}

// put changes the NodeSLO's spec and waits until that is in force; a field that is nil goes.
func (n *served) put(spec map[string]any) {
	n.t.Helper()
	if _, err := n.c.Admin().Patch(n.t.Context(), nodeSLOs+"/"+n.k.Node, cluster.MergePatch, map[string]any{"spec": spec}); err != nil {
		n.t.Fatal(err)
	}
	n.inForce()
}

// withBE is the part of a spec about best effort.
func withBE(fields map[string]any) map[string]any {
	return map[string]any{"resourceUsedThresholdWithBE": fields}
}

// inForce waits until the NodeSLO's status says that its newest spec is.
func (n *served) inForce() {
	n.t.Helper()
	n.await(nodeSLOs+"/"+n.k.Node, "status of the NodeSLO", cluster.Object.InForce)
}

// stand: every pod is ready and has its values.
func (n *served) stand() {
	n.t.Helper()
	for name, wants := range map[string][]string{
		"lsr": slices.Concat(lsrHas, lsrKeeps), "ls": lsHas, "be": slices.Concat(beHas, beYields), "idle": slices.Concat(idleHas, beYields),
	} {
		n.have(n.ready(name), wants...)
	}
}

// resized: a resize in place goes through, up and down, and what hangs on the limit follows.
func (n *served) resized() {
	n.t.Helper()
	before := n.ready("ls")
	for _, to := range []struct{ limit, quota string }{{"700m", "70000"}, {"300m", "30000"}, {"500m", "50000"}} {
		patch := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
			"name": "main", "resources": map[string]any{"limits": map[string]any{"cpu": to.limit}},
		}}}}
		if _, err := n.c.Admin().Patch(n.t.Context(), workPods+"ls/resize", cluster.StrategicPatch, patch); err != nil {
			n.t.Fatal(err)
		}
		after := n.await(workPods+"ls", "resize of ls to "+to.limit, func(p cluster.Object) bool {
			return p.Str("status", "containerStatuses", 0, "resources", "limits", "cpu") == to.limit && p.Condition("PodResizeInProgress") != "True"
		})
		if containerOf(after) != containerOf(before) {
			n.t.Errorf("the resize to %s has started the container anew", to.limit)
		}
		n.have(after, "cpu.max="+to.quota+" 100000", "cpu.max.burst="+to.quota, "pod cpu.max="+to.quota+" 100000", "pod cpu.max.burst="+to.quota, "cpuset.cpus=0-6")
	}
}

// killed: the kubelet finds its pods again, with our values, and starts nothing anew; nor is a write of its own refused.
func (n *served) killed() {
	n.t.Helper()
	before := map[string]string{}
	for _, name := range []string{"lsr", "ls", "be", "idle"} {
		before[name] = containerOf(n.ready(name))
	}
	if err := n.k.End(syscall.SIGKILL); err != nil {
		n.t.Fatal(err)
	}
	if err := n.k.Restart(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	n.stand()
	for name, id := range before {
		if p := n.ready(name); containerOf(p) != id || p.Int("status", "containerStatuses", 0, "restartCount") != 0 {
			n.t.Errorf("%s has another container since the kubelet was killed: %s", name, p.Compact("status", "containerStatuses"))
		}
	}
	for line := range strings.Lines(n.text(n.k.Log)) {
		if strings.HasPrefix(line, "E") && strings.Contains(line, "cgroup") {
			n.t.Errorf("the kubelet: %s", line)
		}
	}
}

// strategyGoes: with the NodeSLO's fields their values leave the kernel; what the pods themselves ask for stays.
func (n *served) strategyGoes() {
	n.t.Helper()
	n.put(map[string]any{"resourceQOSStrategy": nil, "cpuBurstStrategy": nil})
	n.have(n.ready("ls"), "cpu.max.burst=0", "pod cpu.max.burst=0", "cpuset.cpus=0-6")
	n.have(n.ready("idle"), "pod cpu.idle=0", "pod cpu.weight=1", "memory.max=67108864")
	n.have(n.ready("be"), slices.Concat(beHas, beFree)...)
	n.have(n.ready("lsr"), slices.Concat(lsrHas, lsrFree)...)
}
