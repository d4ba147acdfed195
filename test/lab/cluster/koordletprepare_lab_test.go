// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/child"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// managers have the kubelet keep CPUs and place pods, so that there is something to tell of it.
var managers = map[string]any{
	"cpuManagerPolicy": "static", "cpuManagerPolicyOptions": map[string]string{"distribute-cpus-across-numa": "true"},
	"topologyManagerPolicy": "best-effort", "topologyManagerScope": "pod",
	"systemReserved": map[string]string{"cpu": "200m", "memory": "64Mi"}, "kubeReserved": map[string]string{"cpu": "300m"},
}

// prepare installs what koordlet needs and runs the pods.
func (n *governed) prepare(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, dir := range []string{definitions, "testdata/koordlet/install"} {
		if err := n.c.ApplyFolder(ctx, dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.c.Namespace(ctx, "batch"); err != nil {
		t.Fatal(err)
	}
	// A kind is served a moment after its definition is established.
	eventually(t, 10*time.Second, func() error { return n.makeMetric(ctx, 30) })
	n.apply(t, "pods.yaml")
	// A production pod that asks for most of the memory and uses none.
	total, _ := memory(t)
	n.create(t, "prod", "labels: {koordinator.sh/qosClass: LS}", fmt.Sprintf("resources: {requests: {memory: %.0fMi}}", total*0.8/(1<<20)))
	n.ls, n.be, n.top = n.ready(t, "ls"), n.ready(t, "be-low"), n.ready(t, "be-kept")
	n.prod = n.ready(t, "prod")
	n.pin(t, n.ls, other)
	n.application(t)
}

// makeMetric makes the NodeMetric of the node, with the seconds between two reports as the documents write them (M7), which asks for containers, too. In
// koord-manager's words koordlet is asked in TestClusterManager and in the guests.
func (n *governed) makeMetric(ctx context.Context, interval int) error {
	_, err := n.c.Admin().Create(ctx, reports, cluster.Object{
		"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": map[string]any{"name": n.k.Node},
		"spec": map[string]any{"nodeName": n.k.Node, "collectionIntervalSeconds": interval, "metricCollectPolicy": map[string]any{
			"aggregateDurationSeconds": 60, "nodeAggregatePolicy": map[string]any{"durations": windows},
		}},
	})
	return err
}

// application runs a program outside of Kubernetes that gets a fifth of a CPU.
func (n *governed) application(t *testing.T) {
	t.Helper()
	var dirs []string
	for _, ctrl := range []string{"cpu", "cpuacct", "memory"} {
		dir := filepath.Join(n.mount(ctrl), n.h.Cgroup, "app")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	n.app = dirs[0]
	file, value := "cpu.cfs_quota_us", "20000"
	if n.tree.V2() {
		file, value = "cpu.max", "20000 100000"
	}
	if err := cgroups.Write(n.app, file, value); err != nil {
		t.Fatal(err)
	}
	spin(t, other, dirs...)
}

// mount is where a controller's cgroups are.
func (n *governed) mount(ctrl string) string {
	if n.tree.V2() {
		return n.tree.Unified
	}
	return n.tree.Controllers[ctrl]
}

// apply applies a file of testdata/koordlet/work.
func (n *governed) apply(t *testing.T, file string) {
	t.Helper()
	if _, err := n.c.Admin().Apply(t.Context(), "lab", false, []byte(read(t, "testdata/koordlet/work/"+file))); err != nil {
		t.Fatal(err)
	}
}

// identity is who koordlet is to the API server and to the kubelet: a user by a certificate, or the account of packaging/manifests by a
// token of its node.
func (n *governed) identity(t *testing.T) (kubeconfig string, kubelet map[string]any) {
	t.Helper()
	kubelet = map[string]any{
		"endpoint": "https://" + net.JoinHostPort(n.k.IP, strconv.Itoa(n.k.Port)), "caFile": n.c.CA, "interval": "1s",
	}
	var err error
	if n.bound {
		kubeconfig, kubelet["tokenFile"], err = n.c.AgentKubeconfig(t.Context(), n.k.Node)
	} else {
		kubeconfig, err = n.c.Kubeconfig(user)
		base := strings.TrimSuffix(kubeconfig, ".kubeconfig")
		kubelet["certFile"], kubelet["keyFile"] = base+".crt", base+".key"
	}
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig, kubelet
}

// configure tells koordlet who it is and where everything is; the kubelet's certificate is verified against the lab's authority.
// It learns and judges within seconds, where on a node it takes minutes or a day.
func (n *governed) configure(t *testing.T) {
	t.Helper()
	n.dir = filepath.Join(n.h.Dir, "koordlet")
	at := func(name string) string { return filepath.Join(n.dir, name) }
	kubeconfig, kubelet := n.identity(t)
	n.kubeconfig = kubeconfig
	n.metrics = at("metrics.sock")
	config := map[string]any{
		"apiVersion": "koord-rt.dev/v1alpha1", "kind": "KoordletConfig", "nodeName": n.k.Node,
		"runDir": at("run"), "stateDir": at("state"), "strategyFile": at("strategy.yaml"),
		"host": map[string]any{
			"kubepodsRoot": "/" + n.h.Cgroup, "cdiDirs": []string{n.h.CDI}, "kubeletCPUManagerState": n.c.CPUState(n.k.Node),
		},
		"runtimeEndpoint": "unix://" + n.h.Socket,
		"collect":         map[string]any{"slowInterval": "1s"},
		"predict":         map[string]any{"interval": "10s", "coldStart": "40s"},
		"interference":    map[string]any{"history": "20s", "trial": "8s", "calm": "6s"},
		"kubelet":         kubelet,
		"apiServer":       map[string]any{"kubeconfig": kubeconfig},
		"metrics":         map[string]any{"address": "unix:" + n.metrics},
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{at("run"), at("state")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("koordlet.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// start starts koordlet.
func (n *governed) start(t *testing.T) {
	t.Helper()
	n.agent = startProgram(t, filepath.Join(n.dir, "koordlet.log"), bin("koordlet"), "--config", filepath.Join(n.dir, "koordlet.yaml"))
}

// CPUs on which something is measured, and on which the rest is.
const quiet, other = 0, 1

// spin has a process compute on one CPU, in the cgroups of these directories, until the result is called.
func spin(t *testing.T, cpu int, dirs ...string) (stop func()) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	ended, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	t.Cleanup(stop)
	for _, dir := range dirs {
		if err := cgroups.Write(dir, "cgroup.procs", strconv.Itoa(cmd.Process.Pid)); err != nil {
			t.Fatal(err)
		}
	}
	bind(t, cmd.Process.Pid, cpu)
	return stop
}

// bind lets a process run on one CPU only; one that has gone runs nowhere.
func bind(t *testing.T, pid, cpu int) {
	t.Helper()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(pid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Fatalf("bind process %d to CPU %d: %v", pid, cpu, err)
	}
}

// pin binds the processes of a pod's container, and with them their children.
func (n *governed) pin(t *testing.T, pod cluster.Object, cpu int) {
	t.Helper()
	dir := filepath.Join(n.podDir(pod, "cpu"), idOf(pod))
	pids := cgroups.Pids(dir)
	if len(pids) == 0 {
		t.Fatalf("no processes in %s", dir)
	}
	for _, pid := range pids {
		bind(t, pid, cpu)
	}
}

// podDir is a pod's cgroup of a controller.
func (n *governed) podDir(pod cluster.Object, ctrl string) string {
	class := map[string]string{"Burstable": "burstable", "BestEffort": "besteffort"}[pod.Str("status", "qosClass")]
	return filepath.Join(n.mount(ctrl), n.k.CgroupRoot, "kubepods", class, "pod"+pod.Str("metadata", "uid"))
}

// spinIn has a process compute in a pod's container.
func (n *governed) spinIn(t *testing.T, pod cluster.Object, cpu int) (stop func()) {
	t.Helper()
	var dirs []string
	for _, ctrl := range []string{"cpu", "cpuacct"} {
		dirs = append(dirs, filepath.Join(n.podDir(pod, ctrl), idOf(pod)))
	}
	return spin(t, cpu, dirs...)
}
