// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// lifecycles are the tests of behaviour over time. Each runs on a rig of its own run directory, on one containerd.
var lifecycles = []lifecycle{
	{"FirstInstruction", lifecycleFirstInstruction},
	{"InitContainer", lifecycleInitContainer},
	{"ByteIdentical", lifecycleByteIdentical},
	{"Observe", lifecycleObserve},
	{"Away", lifecycleAway},
	{"WhileSynchronizing", lifecycleWhileSynchronizing},
	{"Split", lifecycleSplit},
	{"Resize", lifecycleResize},
	{"ResizePod", lifecycleResizePod},
	{"ResizeExclusive", lifecycleResizeExclusive},
	{"CPUManager", lifecycleCPUManager},
	{"StaticManagers", lifecycleStaticManagers},
	{"IdleUpdated", lifecycleIdleUpdated},
	{"GivenBack", lifecycleGivenBack},
	{"Expiry", lifecycleExpiry},
	{"HandedStrategy", lifecycleHandedStrategy},
	{"Restore", lifecycleRestore},
	{"StrategyFile", lifecycleStrategyFile},
	{"HostileAnnotations", lifecycleHostileAnnotations},
	{"Stuck", lifecycleStuck},
	{"SlowKernel", lifecycleSlowKernel},
	{"Required", lifecycleRequired},
	{"Koordctl", lifecycleKoordctl},
	{"BlockIO", lifecycleBlockIO},
	{"Caps", lifecycleCaps},
	{"CDI", lifecycleCDI},
	{"HAMi", lifecycleHAMi},
	{"RealTime", lifecycleRealTime},
	{"PluginKilled", lifecyclePluginKilled},
	{"SwitchedOff", lifecycleSwitchedOff},
	{"SecondInstance", lifecycleSecondInstance},
	{"RuntimeKilled", lifecycleRuntimeKilled},
	{"LateSocket", lifecycleLateSocket},
	{"KilledBusy", lifecycleKilledBusy},
	{"AnyMoment", lifecycleAnyMoment},
	{"NewSandbox", lifecycleNewSandbox},
}

type lifecycle struct {
	name string
	test func(*rig)
}

// TestHostLifecycle runs them on this machine.
func TestHostLifecycle(t *testing.T) { runLifecycles(t, rigOptions{}) }

// TestGuestLifecycle runs them in a VM.
func TestGuestLifecycle(t *testing.T) { runLifecycles(t, rigOptions{}) }

// TestGuestSystemdLifecycle runs them under systemd with its cgroup driver.
func TestGuestSystemdLifecycle(t *testing.T) { runLifecycles(t, rigOptions{driver: kubelet.Systemd}) }

func runLifecycles(t *testing.T, o rigOptions) {
	r := newRig(t, o)
	for _, l := range lifecycles {
		t.Run(l.name, func(t *testing.T) {
			sub := r.sub(t)
			sub.freshRun()
			l.test(sub)
		})
	}
}

// standard is a strategy that touches every class without needing hardware.
const standard = `
cpuBurstStrategy: {policy: auto, cpuBurstPercent: 100}
resourceQOSStrategy:
  beClass: {cpuQOS: {enable: true, groupIdentity: -1}}
`

// up writes the configuration, starts koord-nri and returns when the runtime has synchronised it.
func (r *rig) up(spec string, more map[string]any) {
	r.t.Helper()
	if err := os.WriteFile(r.config, r.configText(spec, more), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.again()
}

// again starts koord-nri on the configuration that stands there.
func (r *rig) again() {
	r.t.Helper()
	r.launch()
	r.synced()
}

// synced waits until the present process has answered a Synchronize and is connected.
func (r *rig) synced() {
	r.t.Helper()
	r.eventually(time.Minute, func() error {
		m, err := r.metrics()
		if err != nil {
			return err
		}
		if m[`koord_rt_nri_connected`] != 1 || m[`koord_rt_nri_event_duration_seconds_count{event="Synchronize"}`] == 0 {
			return fmt.Errorf("koord-nri (pid %d) is not synchronised yet", r.plugin.Process.Pid)
		}
		return nil
	})
}

// metrics scrapes koord-nri: name with labels -> value.
func (r *rig) metrics() (map[string]float64, error) {
	m, err := scrape(over(filepath.Join(r.run, "metrics.sock")), "http://koord-nri/metrics")
	if err == nil || r.plugin == nil {
		return m, err
	}
	select {
	case <-r.exited:
		return nil, fmt.Errorf("koord-nri (pid %d) has ended: %s: %w", r.plugin.Process.Pid, r.plugin.ProcessState, err)
	default:
		return nil, fmt.Errorf("koord-nri (pid %d) runs: %w", r.plugin.Process.Pid, err)
	}
}

// over is a client of a unix socket.
func over(socket string) *http.Client {
	return &http.Client{Timeout: patience(shortest), Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
}

func scrape(client *http.Client, url string) (map[string]float64, error) {
	resp, err := client.Get(url)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if v, err := strconv.ParseFloat(line[i+1:], 64); err == nil {
			out[line[:i]] = v
		}
	}
	return out, nil
}

// sum adds the series whose name and labels contain every part.
func sum(m map[string]float64, parts ...string) float64 {
	total := 0.0
next:
	for name, v := range m {
		for _, p := range parts {
			if !strings.Contains(name, p) {
				continue next
			}
		}
		total += v
	}
	return total
}

// metric is the present sum of a metric's series.
func (r *rig) metric(parts ...string) float64 {
	r.t.Helper()
	m, err := r.metrics()
	if err != nil {
		r.t.Fatal(err)
	}
	return sum(m, parts...)
}

// pod starts a pod and stops it with the test.
func (r *rig) pod(p kubelet.Pod) *kubelet.Running {
	r.t.Helper()
	run, err := r.kube.StartPod(r.t.Context(), p)
	if err != nil {
		r.t.Fatalf("start pod %s: %v", p.Name, err)
	}
	r.cleanPod(run)
	return run
}

// cleanPod stops a pod with the test; twice is as good as once.
func (r *rig) cleanPod(run *kubelet.Running) {
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience(time.Minute))
		defer cancel()
		if err := r.kube.StopPod(ctx, run); err != nil {
			r.t.Errorf("stop pod %s: %v", run.Pod.Name, err)
		}
	})
}

// cpus of this machine: the last one goes to the exclusive pod, the rest is a kernel list.
func cpus() (last, rest string) {
	n := runtime.NumCPU()
	if n == 2 {
		return "1", "0"
	}
	return strconv.Itoa(n - 1), "0-" + strconv.Itoa(n-2)
}

func uid(name string) string { return "5c1e1000-0000-4000-8000-" + fmt.Sprintf("%012x", fnvOf(name)) }

func fnvOf(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h & 0xffffffffffff
}

// lsrPod owns the last CPU.
func lsrPod(name string) kubelet.Pod {
	last, _ := cpus()
	res := map[string]kubelet.Quantity{"cpu": "1", "memory": "64Mi"}
	return kubelet.Pod{
		Name: name, UID: uid(name), Labels: map[string]string{"koordinator.sh/qosClass": "LSR"},
		Annotations: map[string]string{"scheduling.koordinator.sh/resource-status": `{"cpuset":"` + last + `"}`},
		Containers:  []kubelet.Container{{Name: "main", Resources: kubelet.Resources{Requests: res, Limits: res}}},
	}
}

// lsPod has a limit of half a CPU, so with standard a burst of 50 ms.
func lsPod(name string) kubelet.Pod {
	return kubelet.Pod{
		Name: name, UID: uid(name), Labels: map[string]string{"koordinator.sh/qosClass": "LS"},
		Containers: []kubelet.Container{{Name: "main", Resources: kubelet.Resources{
			Requests: map[string]kubelet.Quantity{"cpu": "200m", "memory": "64Mi"},
			Limits:   map[string]kubelet.Quantity{"cpu": "500m", "memory": "128Mi"},
		}}},
	}
}

// bePod has batch resources, an OOM score and, with standard, SCHED_IDLE.
func bePod(name string) kubelet.Pod {
	return kubelet.Pod{
		Name: name, UID: uid(name),
		Labels: map[string]string{"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"},
		Annotations: map[string]string{
			"koordinator.sh/oom-score-adj": "900",
			"node.koordinator.sh/extended-resource-spec": `{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"},` +
				`"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"128Mi"}}}}`,
		},
		Containers: []kubelet.Container{{Name: "main"}},
	}
}

// idlePod is a BE pod without batch resources: with standard, its cgroup is idle.
func idlePod(name string) kubelet.Pod {
	return kubelet.Pod{
		Name: name, UID: uid(name), Labels: map[string]string{"koordinator.sh/qosClass": "BE"},
		Containers: []kubelet.Container{{Name: "main"}},
	}
}

// wants lists what a running pod of the three kinds holds; shared is what the exclusive pods leave of the CPUs, "" to
// leave cpusets out.
func wants(kind, shared string) []string {
	last, _ := cpus()
	v2 := cgroupV2()
	pick := func(v1, unified string) string {
		if v2 {
			return unified
		}
		return v1
	}
	var out []string
	switch kind {
	case "LSR":
		return []string{
			"main cpuset.cpus=" + last,
			pick("main cpu.cfs_quota_us=-1", "main cpu.max=max 100000"), pick("pod cpu.cfs_quota_us=-1", "pod cpu.max=max 100000"),
			pick("main cpu.cfs_burst_us=0", "main cpu.max.burst=0"),
		}
	case "LS":
		out = []string{
			pick("main cpu.cfs_quota_us=50000", "main cpu.max=50000 100000"),
			pick("main cpu.cfs_burst_us=50000", "main cpu.max.burst=50000"), pick("pod cpu.cfs_burst_us=50000", "pod cpu.max.burst=50000"),
			"main @sched=0",
		}
	case "BE":
		out = []string{
			pick("main cpu.cfs_quota_us=50000", "main cpu.max=50000 100000"), pick("pod cpu.cfs_quota_us=50000", "pod cpu.max=50000 100000"),
			pick("main memory.limit_in_bytes=134217728", "main memory.max=134217728"),
			pick("pod memory.limit_in_bytes=134217728", "pod memory.max=134217728"),
			pick("main cpu.shares=512", "main cpu.weight=59"), pick("pod cpu.shares=512", "pod cpu.weight=20"),
			"main @sched=5", "main @oom=900",
		}
	case "idle":
		out = []string{"pod cpu.idle=1", "main cpu.idle=0", "main @sched=5"}
	}
	if shared != "" {
		out = append(out, "main cpuset.cpus="+shared)
	}
	return out
}

func cgroupV2() bool {
	tree, err := cgroups.Detect()
	return err == nil && tree.V2()
}

// value reads one subject of wants: "main FILE" or "pod FILE".
func (r *rig) value(run *kubelet.Running, what string) (string, error) {
	level, file, _ := strings.Cut(what, " ")
	if strings.HasPrefix(file, "@") {
		return r.attribute(run, wantOf(run, level, file))
	}
	dir := r.kube.PodDir(run, r.controller(file))
	if level != "pod" {
		dir = r.kube.ContainerDir(run, level, r.controller(file))
	}
	return cgroups.Read(dir, file)
}

// differs names the first wanted value that the kernel does not hold.
func (r *rig) differs(run *kubelet.Running, wants []string) error {
	for _, w := range wants {
		what, value, _ := strings.Cut(w, "=")
		got, err := r.value(run, what)
		if err != nil {
			return fmt.Errorf("%s: %w", run.Pod.Name, err)
		}
		if got != value {
			return fmt.Errorf("%s: want %s = %q, the kernel has %q", run.Pod.Name, what, value, got)
		}
	}
	return nil
}

// soon fails when the values do not all stand within the limit.
func (r *rig) soon(limit time.Duration, run *kubelet.Running, wants []string) {
	r.t.Helper()
	r.eventually(limit, func() error { return r.differs(run, wants) })
}

// wantOf is an attribute of wants as a line of a scenario.
func wantOf(run *kubelet.Running, container, what string) scenario.Want {
	return scenario.Want{Pod: run.Pod.Name, Container: container, File: what}
}
