// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/cluster/exercise"
	"github.com/koord-rt/koord-rt/test/lab/critest"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// TestClusterNodeThroughProxy: what a node does on its runtime it does with our proxy between, colocated pods get
// their values, and both go on when the proxy is killed.
func TestClusterNodeThroughProxy(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	h := startHost(ctx, t, parts.Kubelet, parts.Kubectl)
	c := start(t, filepath.Join(h.Dir, "cluster"))
	// What a request, a start or a new life has to write, the check for drift must not write in its place: by default it comes within holds' time.
	p := startProxy(ctx, t, h, map[string]any{"driftInterval": "10m"})
	t.Run("exercise", func(t *testing.T) {
		exercise.Run(t, c, exercise.Options{
			Kubelet:   cluster.KubeletOptions{Runtime: p.Socket, CgroupRoot: h.Cgroup},
			WhileDown: func(t *testing.T) { again(t, p) },
		})
	})
	t.Run("colocation", func(t *testing.T) {
		k, err := c.StartKubelet(ctx, cluster.KubeletOptions{
			Runtime: p.Socket, CgroupRoot: h.Cgroup, Node: "node1", FeatureGates: map[string]bool{"EventedPLEG": true},
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
		n := &colocated{c: c, k: k, p: p, h: h, tree: tree, last: strconv.Itoa(runtime.NumCPU() - 1), rest: "0"}
		if cpus := runtime.NumCPU(); cpus > 2 {
			n.rest = "0-" + strconv.Itoa(cpus-2)
		}
		t.Run("values", n.values)
		t.Run("resize", n.resize)
		t.Run("kill", n.kill)
		// What the runtime does between a proxy's death and the next one's list may be told to neither: the check for drift sees to that.
		if err := p.Configure(proxyConfig(h, nil)); err != nil {
			t.Fatal(err)
		}
		again(t, p)
		t.Run("kill while pods come", n.killWhileComing)
	})
}

// proxyConfig is the proxy's configuration for a host; more are fields over it.
func proxyConfig(h *host.Host, more map[string]any) map[string]any {
	config := map[string]any{
		"host": map[string]any{"kubepodsRoot": "/" + h.Cgroup, "cdiDirs": []string{h.CDI}},
		"strategy": map[string]any{
			"resourceQOSStrategy": map[string]any{"beClass": map[string]any{"cpuQOS": map[string]any{"enable": true, "groupIdentity": -1}}},
			"cpuBurstStrategy":    map[string]any{"policy": "auto", "cpuBurstPercent": 1000},
		},
	}
	maps.Copy(config, more)
	return config
}

// startProxy puts our proxy in front of a host's runtime.
func startProxy(ctx context.Context, t *testing.T, h *host.Host, more map[string]any) *critest.Proxy {
	t.Helper()
	p, err := critest.StartProxy(ctx, critest.ProxyOptions{
		Program: bin("koord-runtime-proxy"), Dir: filepath.Join(h.Dir, "proxy"),
		Runtime: h.Socket, Config: proxyConfig(h, more),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("end of the proxy's log:\n%s", logEnd(p.Log))
		}
	})
	return p
}

// colocated is a node with pods that carry Koordinator's labels.
type colocated struct {
	c    *cluster.Cluster
	k    *cluster.Kubelet
	p    *critest.Proxy
	h    *host.Host
	tree cgroups.Tree
	last string // the node's last CPU
	rest string // the others
}

const batchPods = "/api/v1/namespaces/batch/pods/"

// soon is what is waited at least for what other processes bring about. It costs only where it fails: on two CPUs beside emulated machines what
// takes seconds, with an API server, a kubelet and our programs in it, may take a minute.
const soon = 2 * time.Minute

const batchMeta = `labels: {koordinator.sh/qosClass: BE}, annotations: {node.koordinator.sh/extended-resource-spec: ` +
	`'{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"},` +
	`"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"}}}}'}`

// create makes a pod of one container; meta and main are YAML of its metadata and of its container's fields.
func (n *colocated) create(t *testing.T, name, meta, main string) {
	t.Helper()
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", namespace: batch, " + meta + "}\n" +
		"spec: {nodeName: " + n.k.Node + ", dnsPolicy: Default, terminationGracePeriodSeconds: 1, containers: [{name: main, " +
		"image: " + parts.ImageRef + ", imagePullPolicy: Never, " + main + "}]}\n"
	if _, err := n.c.Admin().Apply(t.Context(), "lab", false, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// wait polls a pod.
func (n *colocated) wait(t *testing.T, name, what string, ok func(cluster.Object) bool) cluster.Object {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	pod, err := n.c.Admin().Wait(ctx, batchPods+name, name+" "+what, ok)
	if err != nil {
		t.Fatalf("%v\nend of the kubelet's log:\n%s", err, logEnd(n.k.Log))
	}
	return pod
}

func (n *colocated) ready(t *testing.T, name string) cluster.Object {
	t.Helper()
	return n.wait(t, name, "ready", func(p cluster.Object) bool { return p.Condition("Ready") == "True" })
}

// holds compares a control file of the pod's container, written "file=value", in each cgroup version's spelling. The
// last values are written just after the start, so it may take a moment.
func (n *colocated) holds(t *testing.T, pod cluster.Object, controller, v1, v2 string) {
	t.Helper()
	var err error
	for begun := time.Now(); time.Since(begun) < soon; time.Sleep(50 * time.Millisecond) {
		if err = n.held(pod, controller, v1, v2); err == nil {
			return
		}
	}
	t.Error(err)
}

// held is an error unless the control file has this value now.
func (n *colocated) held(pod cluster.Object, controller, v1, v2 string) error {
	mount, want := n.tree.Controllers[controller], v1
	if n.tree.V2() {
		mount, want = n.tree.Unified, v2
	}
	file, value, _ := strings.Cut(want, "=")
	dir := filepath.Join(mount, n.k.CgroupRoot, "kubepods", map[string]string{"Burstable": "burstable", "BestEffort": "besteffort"}[pod.Str("status", "qosClass")],
		"pod"+pod.Str("metadata", "uid"), idOf(pod))
	got, err := cgroups.Read(dir, file)
	if err == nil && got != value {
		err = fmt.Errorf("%s of %s: %q, want %q", file, pod.Str("metadata", "name"), got, value)
	}
	return err
}

// idOf is the id of the pod's only container.
func idOf(pod cluster.Object) string {
	_, id, _ := strings.Cut(pod.Str("status", "containerStatuses", 0, "containerID"), "://")
	return id
}

func (n *colocated) batchHolds(t *testing.T, pod cluster.Object) {
	t.Helper()
	n.holds(t, pod, "cpu", "cpu.cfs_quota_us=50000", "cpu.max=50000 100000")
	n.holds(t, pod, "cpu", "cpu.shares=512", "cpu.weight=20")
	n.holds(t, pod, "memory", "memory.limit_in_bytes=67108864", "memory.max=67108864")
}

// lsHolds checks quota and burst in microseconds, and that the CPU of the LSR pod is left alone.
func (n *colocated) lsHolds(t *testing.T, pod cluster.Object, quota string) {
	t.Helper()
	n.holds(t, pod, "cpu", "cpu.cfs_quota_us="+quota, "cpu.max="+quota+" 100000")
	n.holds(t, pod, "cpu", "cpu.cfs_burst_us="+quota, "cpu.max.burst="+quota)
	n.holds(t, pod, "cpuset", "cpuset.cpus="+n.rest, "cpuset.cpus="+n.rest)
}

// marked fails unless the container carries the proxy's mark.
func (n *colocated) marked(t *testing.T, pod cluster.Object) {
	t.Helper()
	status, _, err := n.h.CRI().ContainerStatus(t.Context(), idOf(pod))
	if err != nil {
		t.Fatal(err)
	}
	var mark struct{ By string }
	if err := json.Unmarshal([]byte(status.Annotations["koord-rt.dev/applied"]), &mark); err != nil || !strings.HasPrefix(mark.By, "koord-runtime-proxy/") {
		t.Errorf("%s carries the mark %q, %v", pod.Str("metadata", "name"), status.Annotations["koord-rt.dev/applied"], err)
	}
}

// values: the three classes at once.
func (n *colocated) values(t *testing.T) {
	be := runBatchPod(t.Context(), t, n.c, n.k)
	n.create(t, "lsr", `labels: {koordinator.sh/qosClass: LSR}, annotations: {scheduling.koordinator.sh/resource-status: '{"cpuset":"`+n.last+`"}'}`,
		"resources: {requests: {cpu: 300m, memory: 64Mi}, limits: {cpu: 300m, memory: 64Mi}}")
	n.create(t, "ls", "labels: {koordinator.sh/qosClass: LS}", "resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 200m, memory: 64Mi}}")
	lsr, ls := n.ready(t, "lsr"), n.ready(t, "ls")
	n.batchHolds(t, be)
	n.lsHolds(t, ls, "20000")
	n.lsrHolds(t, lsr)
	for _, pod := range []cluster.Object{be, ls, lsr} {
		n.marked(t, pod)
	}
}

func (n *colocated) lsrHolds(t *testing.T, pod cluster.Object) {
	t.Helper()
	n.holds(t, pod, "cpuset", "cpuset.cpus="+n.last, "cpuset.cpus="+n.last)
	n.holds(t, pod, "cpu", "cpu.cfs_quota_us=-1", "cpu.max=max 100000")
}

// resizeTo changes CPU in place and waits until the kubelet says that it is done.
func (n *colocated) resizeTo(t *testing.T, name, request, limit string) cluster.Object {
	t.Helper()
	patch := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
		"name": "main", "resources": map[string]any{"requests": map[string]any{"cpu": request}, "limits": map[string]any{"cpu": limit}},
	}}}}
	before := n.ready(t, name)
	begun := time.Now()
	if _, err := n.c.Admin().Patch(t.Context(), batchPods+name+"/resize", cluster.StrategicPatch, patch); err != nil {
		t.Fatal(err)
	}
	after := n.wait(t, name, "resized", func(p cluster.Object) bool {
		return p.Str("status", "containerStatuses", 0, "allocatedResources", "cpu") == request &&
			p.Int("status", "observedGeneration") >= p.Int("metadata", "generation") &&
			p.Condition("PodResizeInProgress") != "True" && p.Condition("PodResizePending") != "True"
	})
	t.Logf("%s resized after %s; status.resources %s", name, time.Since(begun).Round(time.Millisecond), after.Compact("status", "containerStatuses", 0, "resources"))
	if idOf(before) != idOf(after) || after.Int("status", "containerStatuses", 0, "restartCount") != 0 {
		t.Errorf("the resize of %s restarted the container", name)
	}
	return after
}

var updates = regexp.MustCompile(`(?m)^koord_rt_cri_event_duration_seconds_count\{event="UpdateContainer"\} (\d+)`)

// updated is the number of UpdateContainerResources calls that the proxy has seen.
func (n *colocated) updated(t *testing.T) int {
	t.Helper()
	text, err := n.p.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := updates.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	count, _ := strconv.Atoi(m[1]) // digits by the pattern
	return count
}

// resize: the kubelet's new values with ours on top, and then rest: the kubelet compares the runtime's values with what it
// has asked for, and must not ask again and again because ours differ.
func (n *colocated) resize(t *testing.T) {
	start := n.updated(t)
	ls := n.resizeTo(t, "ls", "150m", "300m")
	if got := ls.Str("status", "containerStatuses", 0, "resources", "limits", "cpu"); got != "300m" {
		t.Errorf("status.resources of ls has the CPU limit %q, want 300m", got)
	}
	n.lsHolds(t, ls, "30000")
	lsr := n.resizeTo(t, "lsr", "400m", "400m")
	// Its limit in the status stays what it was: the runtime has no quota to tell of.
	if got := lsr.Str("status", "containerStatuses", 0, "resources", "requests", "cpu"); got != "400m" {
		t.Errorf("status.resources of lsr has the CPU request %q, want 400m", got)
	}
	n.lsrHolds(t, lsr)
	n.holds(t, lsr, "cpu", "cpu.shares=409", "cpu.weight=16")
	settled := atRest(t, func() int { return n.updated(t) })
	if asked := settled - start; asked > 20 {
		t.Errorf("two resizes made the kubelet ask for %d updates", asked)
	}
	if settled == start {
		t.Error("no UpdateContainerResources came through the proxy: the resizes prove nothing")
	}
	for begun := time.Now(); time.Since(begun) < 7*time.Second; time.Sleep(500 * time.Millisecond) { // three syncs of the kubelet
		if now := n.updated(t); now != settled {
			t.Fatalf("%d more updates after the resizes were done: the kubelet does not come to rest", now-settled)
		}
	}
	n.lsHolds(t, ls, "30000")
	for _, name := range []string{"ls", "lsr"} {
		pod := n.ready(t, name)
		if pod.Condition("PodResizeInProgress") == "True" || pod.Int("status", "containerStatuses", 0, "restartCount") != 0 {
			t.Errorf("%s after the resize: %s", name, pod.Compact("status"))
		}
	}
}
