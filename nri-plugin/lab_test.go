// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

const labStrategy = `
resourceUsedThresholdWithBE: {enable: true}
cpuBurstStrategy: {policy: auto, cpuBurstPercent: 50}
resourceQOSStrategy:
  lsrClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true, minLimitPercent: 50}}
  lsClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true, minLimitPercent: 20, throttlingPercent: 90}}
  beClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true, throttlingPercent: 80}}
`

// node is a real containerd, a kubelet and our binary beside it.
type node struct {
	*host.Host
	k      *kubelet.Kubelet
	dir    string
	binary string
	cmd    *exec.Cmd
	tree   cgroups.Tree
}

func newNode(t *testing.T, version string) *node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	n := &node{dir: t.TempDir()}
	n.build(t)
	var err error
	// A guest of lane 3 with systemd as PID 1 uses the driver that production uses.
	driver, systemd := kubelet.Cgroupfs, os.Getenv("KOORD_RT_SYSTEMD") != ""
	if systemd {
		driver = kubelet.Systemd
	}
	if n.Host, err = host.Start(ctx, host.Options{Version: version, SystemdCgroup: systemd}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.end(unix.SIGTERM)
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(n.dir, "log"))
			t.Logf("log of koord-nri:\n%s", log)
		}
	})
	if n.tree, err = cgroups.Detect(); err != nil {
		t.Fatal(err)
	}
	if n.k, err = kubelet.New(ctx, kubelet.Options{CRI: n.CRI(), LogDir: n.Logs, Root: n.Cgroup, Driver: driver}); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`apiVersion: koord-rt.dev/v1alpha1
kind: NRIConfig
socket: %s
runDir: %s/run
stateDir: %s/state
strategyFile: %s/strategy.yaml
metrics: {address: "unix:%s/m.sock"}
host: {criEndpoint: "unix://%s", kubeletCPUManagerState: %s/none, kubeletMemoryManagerState: %s/none}
log: {level: debug}
`, n.NRISocket, n.dir, n.dir, n.dir, n.dir, n.Socket, n.dir, n.dir)
	for name, text := range map[string]string{"config.yaml": config, "strategy.yaml": labStrategy} {
		if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// build makes the binary, unless the environment names one: a guest of lane 3 has no Go.
func (n *node) build(t *testing.T) {
	t.Helper()
	if n.binary = os.Getenv("KOORD_NRI_BINARY"); n.binary != "" {
		return
	}
	n.binary = filepath.Join(n.dir, "koord-nri")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", n.binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
}

// cpus are all CPUs of this machine, and all but CPU 0, which the LSR pod takes.
func cpus(t *testing.T) (all, rest string) {
	t.Helper()
	raw, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	set, err := topo.ParseCPUSet(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	return set.String(), set.Minus(topo.CPUs(0)).String()
}

// begin starts the plugin and waits until it takes part in events.
func (n *node) begin(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n.cmd = exec.Command(n.binary, "--config", filepath.Join(n.dir, "config.yaml"))
	n.cmd.Stdout, n.cmd.Stderr = log, log
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n.until(t, "connection", func() bool { return n.healthy() && n.synced() })
}

func (n *node) end(sig unix.Signal) {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Signal(sig)
	_ = n.cmd.Wait()
	n.cmd = nil
}

func (n *node) healthy() bool {
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", n.dir+"/m.sock")
	}}}
	r, err := c.Get("http://x/healthz")
	if err != nil {
		return false
	}
	_ = r.Body.Close()
	return r.StatusCode == http.StatusOK
}

func (n *node) synced() bool {
	log, _ := os.ReadFile(filepath.Join(n.dir, "log"))
	i := strings.LastIndex(string(log), "msg=started")
	return i >= 0 && strings.Contains(string(log[i:]), "msg=synchronized")
}

func (n *node) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

func (n *node) pod(t *testing.T, text string) *kubelet.Running {
	t.Helper()
	p, err := kubelet.ParsePod([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := n.k.StartPod(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// read gives a container's file by cgroup version.
func (n *node) read(t *testing.T, r *kubelet.Running, container, controller, v1, v2 string) string {
	t.Helper()
	file := v1
	if n.tree.V2() {
		file = v2
	}
	got, err := cgroups.Read(n.k.ContainerDir(r, container, controller), file)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

const bePod = `
name: batch
uid: be-1
labels: {koordinator.sh/qosClass: BE}
annotations:
  node.koordinator.sh/extended-resource-spec: '{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"67108864"},"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"67108864"}}}}'
containers:
- name: main
`

const lsrPod = `
name: latency
uid: lsr-1
labels: {koordinator.sh/qosClass: LSR}
annotations:
  scheduling.koordinator.sh/resource-status: '{"cpuset":"0"}'
containers:
- name: main
  resources:
    requests: {cpu: "1", memory: 64Mi}
    limits: {cpu: "1", memory: 64Mi}
`

const lsPod = `
name: web
uid: ls-1
labels: {koordinator.sh/qosClass: LS}
containers:
- name: main
  resources:
    requests: {cpu: 500m, memory: 64Mi}
    limits: {cpu: 800m, memory: 128Mi}
`

// The main job on a real runtime: what is promised stands in the kernel, and a neighbour makes room.
func TestLabCreate(t *testing.T) {
	for _, version := range []string{parts.Containerd24, parts.Containerd20, parts.Containerd17} {
		t.Run(version, func(t *testing.T) {
			n := newNode(t, version)
			n.begin(t)
			all, rest := cpus(t)
			be := n.pod(t, bePod)
			ls := n.pod(t, lsPod)
			if got := n.read(t, be, "main", "cpu", "cpu.cfs_quota_us", "cpu.max"); !strings.HasPrefix(got, "50000") {
				t.Errorf("batch quota = %s", got)
			}
			if got := n.read(t, be, "main", "memory", "memory.limit_in_bytes", "memory.max"); got != "67108864" {
				t.Errorf("batch memory = %s", got)
			}
			lsr := n.pod(t, lsrPod)
			if got := n.read(t, lsr, "main", "cpuset", "cpuset.cpus", "cpuset.cpus"); got != "0" {
				t.Errorf("LSR cpuset = %s", got)
			}
			if got := n.read(t, lsr, "main", "cpu", "cpu.cfs_quota_us", "cpu.max"); got != "-1" && got != "max 100000" {
				t.Errorf("LSR quota = %s", got)
			}
			for name, r := range map[string]*kubelet.Running{"BE": be, "LS": ls} {
				if got := n.read(t, r, "main", "cpuset", "cpuset.cpus", "cpuset.cpus"); got != rest {
					t.Errorf("%s cpuset beside an LSR container = %s", name, got)
				}
			}
			n.proofs(t)
			if err := n.k.StopPod(t.Context(), lsr); err != nil {
				t.Fatal(err)
			}
			n.until(t, "BE gets its CPUs back", func() bool {
				return n.read(t, be, "main", "cpuset", "cpuset.cpus", "cpuset.cpus") == all
			})
			n.memory(t)
		})
	}
}

// proofs reports what did not hold at start.
func (n *node) proofs(t *testing.T) {
	t.Helper()
	n.until(t, "proofs in the ledger", func() bool {
		records, _, err := ledger.ReadAll(n.dir + "/run")
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for i := range records {
			if r := &records[i]; r.Via == journal.ViaProof {
				count++
				if r.Err != "" {
					t.Errorf("proof: %s", r.Err)
				}
			}
		}
		return count > 0
	})
}

// memory keeps the plugin small.
func (n *node) memory(t *testing.T) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var kib int
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			t.Logf("RSS %.1f MiB", float64(kib)/1024)
			if kib > 32<<10 {
				t.Errorf("RSS is %d KiB", kib)
			}
		}
	}
}

// Kill -9 of plugin and of containerd: running containers keep what they have, updates know the true base, new ones are
// served.
func TestLabKill(t *testing.T) {
	n := newNode(t, parts.Containerd24)
	n.begin(t)
	be := n.pod(t, bePod)
	n.end(unix.SIGKILL)
	if got := n.read(t, be, "main", "cpu", "cpu.cfs_quota_us", "cpu.max"); !strings.HasPrefix(got, "50000") {
		t.Errorf("quota after kill = %s", got)
	}
	unmanaged := n.pod(t, lsPod) // nobody blocks it
	n.begin(t)
	n.until(t, "count of the container that came without us", func() bool {
		entries, err := status.ReadAll(n.dir+"/run", "/proc")
		return err == nil && len(entries) == 1 && entries[0].Counters["unmanaged"] == 1
	})
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := n.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.until(t, "reconnect", n.healthy)
	n.until(t, "two connects", func() bool {
		entries, err := status.ReadAll(n.dir+"/run", "/proc")
		return err == nil && len(entries) == 1 && entries[0].Connects >= 2
	})
	n.pod(t, lsrPod)
	_, rest := cpus(t)
	for name, r := range map[string]*kubelet.Running{"BE": be, "LS": unmanaged} {
		if got := n.read(t, r, "main", "cpuset", "cpuset.cpus", "cpuset.cpus"); got != rest {
			t.Errorf("%s cpuset beside an LSR container = %s", name, got)
		}
	}
}

// An in-place resize ends in our final values, in both directions.
func TestLabResize(t *testing.T) {
	n := newNode(t, parts.Containerd24)
	n.begin(t)
	ls := n.pod(t, lsPod)
	for _, limit := range []string{"400m", "1500m", "600m"} {
		res := kubelet.Resources{
			Requests: map[string]kubelet.Quantity{"cpu": "300m", "memory": "64Mi"},
			Limits:   map[string]kubelet.Quantity{"cpu": kubelet.Quantity(limit), "memory": "128Mi"},
		}
		if err := n.k.ResizeContainer(t.Context(), ls, "main", res); err != nil {
			t.Fatalf("resize to %s: %v", limit, err)
		}
		milli, err := kubelet.Quantity(limit).Milli()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := n.read(t, ls, "main", "cpu", "cpu.cfs_quota_us", "cpu.max"), fmt.Sprint(milli*100); !strings.HasPrefix(got, want) {
			t.Errorf("quota at %s = %s, want %s", limit, got, want)
		}
		burst := fmt.Sprint(milli * 50)
		n.until(t, "burst at "+limit, func() bool {
			return n.read(t, ls, "main", "cpu", "cpu.cfs_burst_us", "cpu.max.burst") == burst
		})
	}
}

// What crictl inspect shows says who changed what.
func TestLabAnnotation(t *testing.T) {
	n := newNode(t, parts.Containerd24)
	n.begin(t)
	n.pod(t, bePod)
	text := ""
	list, err := n.CRI().Containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		_, info, err := n.CRI().ContainerStatus(t.Context(), c.Id)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(info)
		if err != nil {
			t.Fatal(err)
		}
		text += string(raw)
	}
	if !strings.Contains(text, protocol.AnnotationApplied) {
		t.Errorf("no %s in %s", protocol.AnnotationApplied, text)
	}
}
