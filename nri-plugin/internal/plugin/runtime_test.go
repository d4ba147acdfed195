// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/sys"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/nri-plugin/internal/plugin"
)

// nodeStrategy switches on what the tests look at.
const nodeStrategy = `
resourceUsedThresholdWithBE: {enable: true}
cpuBurstStrategy: {policy: auto, cpuBurstPercent: 50}
resourceQOSStrategy:
  lsrClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true, minLimitPercent: 50}}
  lsClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true, minLimitPercent: 20, throttlingPercent: 90}}
  beClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true, throttlingPercent: 80}}
`

// records keeps a journal in memory.
type records struct {
	mu   sync.Mutex
	list []journal.Record
}

func (r *records) Append(more ...journal.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, more...)
	return nil
}

func (r *records) all() []journal.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// slowKernel delays Apply and Verify by what a test asks for.
type slowKernel struct {
	engine.Kernel
	mu    sync.Mutex
	delay time.Duration
	panic bool
}

func (k *slowKernel) set(d time.Duration, panics bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.delay, k.panic = d, panics
}

func (k *slowKernel) Verify(p plan.Plan) []apply.Mismatch {
	k.mu.Lock()
	d, panics := k.delay, k.panic
	k.mu.Unlock()
	if panics {
		panic("kernel went away")
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
	return k.Kernel.Verify(p)
}

// host is one machine: fake kernel, runtime, and our plugin.
type host struct {
	tree    *kerneltest.Tree
	socket  string
	rt      *runtime
	journal *records
	kernel  *slowKernel
	views   *engine.Views
	engine  *engine.Engine
	plugin  *plugin.Plugin
	stop    func()
	lister  engine.Lister // answers the re-list, may be nil
}

// runtime is NRI's own adaptation with a list of containers behind it: what containerd is to a plugin.
type runtime struct {
	*adaptation.Adaptation
	wire       *wire
	mu         sync.Mutex
	pods       []*api.PodSandbox
	containers []*api.Container
	synced     int
	updates    int
}

func newRuntime(t testing.TB, socket string) *runtime {
	t.Helper()
	r := &runtime{wire: listen(t, socket)}
	behind := r.wire.behind
	sync := func(ctx context.Context, cb adaptation.SyncCB) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		updates, err := cb(ctx, r.pods, r.containers)
		if err == nil {
			r.synced++
			r.updates += len(updates)
		}
		return err
	}
	update := func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
		return nil, errors.New("unsolicited updates can deadlock a runtime")
	}
	a, err := adaptation.New("containerd", "v2.4.2", sync, update,
		adaptation.WithSocketPath(behind), adaptation.WithPluginPath(t.TempDir()), adaptation.WithPluginConfigPath(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	r.Adaptation = a
	must(t, a.Start())
	r.mu.Lock()
	r.synced = 0 // Start has synchronized the plugins that it launched itself: none
	r.mu.Unlock()
	return r
}

func (r *runtime) syncs() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.synced
}

// settle returns when a plugin that has just synchronized takes part in events.
func (r *runtime) settle() {
	r.BlockPluginSync().Unblock()
}

// die ends the runtime as kill -9 would: its connections break.
func (r *runtime) die() {
	r.wire.cut()
	r.Stop()
}

// add makes containers known to the next Synchronize.
func (r *runtime) add(sb *api.PodSandbox, ctrs ...*api.Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods = append(r.pods, sb)
	r.containers = append(r.containers, ctrs...)
}

// newHost builds a machine; the plugin runs when run is called.
func newHost(t testing.TB, kernel string) *host { return newHostWith(t, kernel, nil) }

// newHostWith is newHost with a CRI to ask, and options that a test changes.
func newHostWith(t testing.TB, kernel string, list engine.Lister, change ...func(*host, *engine.Options)) *host {
	t.Helper()
	h := &host{lister: list, tree: kerneltest.New(t, kernel, "/kubepods/burstable", "/kubepods/besteffort"), socket: path.Join(t.TempDir(), "nri.sock"), journal: &records{}}
	cfg := config.Default()
	cfg.Socket, cfg.RunDir = h.socket, t.TempDir()
	cfg.Reconnect = config.Reconnect{Min: config.Duration(10 * time.Millisecond), Max: config.Duration(50 * time.Millisecond)}
	cfg.Deadline = config.Duration(300 * time.Millisecond)
	fs, err := cgroup.Open(h.tree.Roots, h.tree.Version, cgroup.Options{Weight: unit.Quadratic})
	must(t, err)
	applier, err := apply.New(apply.Options{FS: fs, Roots: h.tree.Roots, Journal: h.journal, Writer: h.tree})
	must(t, err)
	h.kernel = &slowKernel{Kernel: applier}
	spec, err := strategy.Parse([]byte(nodeStrategy))
	must(t, err)
	drift := 50 * time.Millisecond
	if _, ok := t.(*testing.B); ok {
		drift = 10 * time.Second // as in production
	}
	h.views = engine.NewViews(cfg.Node, h.static(t, fs), &spec, "test")
	m, err := metrics.NewEngine(prometheus.NewRegistry(), "nri")
	must(t, err)
	o := engine.Options{
		Config: cfg.Node, Edge: plugin.Edge{Version: "test"}, Log: testLog(t), Metrics: m,
		Journal: h.journal, Kernel: h.kernel, Views: h.views, CgroupRoot: h.tree.Roots.Cgroup, Drift: drift, List: h.lister,
		Live: &engine.Live{Resctrl: h.tree.Roots.Resctrl},
	}
	for _, f := range change {
		f(h, &o)
	}
	h.engine = engine.New(o)
	h.plugin = plugin.New(plugin.Options{Config: cfg, Version: "test", Log: o.Log, Metrics: m, Engine: h.engine})
	return h
}

// static is what a probe of the fake machine would find.
func (h *host) static(t testing.TB, fs cgroup.FS) engine.Static {
	t.Helper()
	topology, err := sys.FS(h.tree.Roots.Sys).Topology()
	must(t, err)
	s := engine.Static{
		Name: "node-1", Topology: topology, Weight: unit.Quadratic, CPUAllocatable: 8000, MemCapacity: 16 << 30, MemAllocatable: 16 << 30,
		Kernel: node.Kernel{Release: "6.1.0", Major: 6, Minor: 1, Cgroup: h.tree.Version},
	}
	for _, k := range []plan.Knob{
		plan.CPUShares, plan.CPUQuota, plan.CPUPeriod, plan.CPUBurst, plan.CPUIdle, plan.CPUSetCPUs, plan.CPUSetMems,
		plan.MemoryLimit, plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh, plan.MemoryOOMGroup,
	} {
		s.Kernel.Knobs[k].OK = fs.IsFile(k)
	}
	return s
}

// run starts runtime and plugin and waits for the first Synchronize.
func (h *host) run(t testing.TB) {
	t.Helper()
	if h.rt == nil {
		h.rt = newRuntime(t, h.socket)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.plugin.Run(ctx)
	}()
	h.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(func() { h.stop(); h.rt.die() })
	eventually(t, "synchronize", func() bool { return h.rt.syncs() > 0 && h.engine.Connected() })
	h.rt.settle()
}

// pod makes a pod's cgroup as the kubelet does and announces it.
func (h *host) pod(t testing.TB, name, qos string, annotations map[string]string) *api.PodSandbox {
	t.Helper()
	sb := h.sandbox(t, name, qos, annotations)
	must(t, h.rt.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: sb}))
	return sb
}

func (h *host) sandbox(t testing.TB, name, qos string, annotations map[string]string) *api.PodSandbox {
	t.Helper()
	parent := "/kubepods/burstable/pod" + name
	switch qos {
	case "BE":
		parent = "/kubepods/besteffort/pod" + name
	case "LSR", "LSE":
		parent = "/kubepods/pod" + name
	}
	h.tree.Mkdir(t, parent)
	return &api.PodSandbox{
		Id: "sandbox-" + name, Name: name, Uid: name, Namespace: "default", Annotations: annotations,
		Labels: map[string]string{protocol.LabelQoSClass: qos},
		Linux:  &api.LinuxPodSandbox{CgroupParent: parent, PodResources: resources(1024, 200000, 1<<30)},
	}
}

func resources(shares uint64, quota, memory int64) *api.LinuxResources {
	return &api.LinuxResources{
		Cpu:    &api.LinuxCPU{Shares: api.UInt64(shares), Quota: api.Int64(quota), Period: api.UInt64(uint64(100000))},
		Memory: &api.LinuxMemory{Limit: api.Int64(memory)},
	}
}

func ctrOf(sb *api.PodSandbox, name string) *api.Container {
	id := fmt.Sprintf("%s-%s", sb.Id, name)
	return &api.Container{
		Id: id, PodSandboxId: sb.Id, Name: name,
		Linux: &api.LinuxContainer{CgroupsPath: sb.Linux.CgroupParent + "/" + id, Resources: resources(1024, 200000, 1<<30)},
	}
}

// create asks the plugins and does with their answer what containerd and runc do.
func (h *host) create(t testing.TB, sb *api.PodSandbox, ctr *api.Container) *api.ContainerAdjustment {
	t.Helper()
	rpl, err := h.rt.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sb, Container: ctr})
	must(t, err)
	h.runc(t, ctr, rpl.Adjust)
	return rpl.Adjust
}

// runc makes the container's cgroup by its spec.
func (h *host) runc(t testing.TB, ctr *api.Container, adj *api.ContainerAdjustment) {
	t.Helper()
	dir := ctr.Linux.CgroupsPath
	h.tree.Mkdir(t, dir)
	r := ctr.Linux.Resources
	for k, v := range adj.GetAnnotations() {
		if ctr.Annotations == nil {
			ctr.Annotations = map[string]string{}
		}
		ctr.Annotations[k] = v
	}
	if a := adj.GetLinux().GetResources(); a != nil {
		if a.Cpu.GetCpus() != "" {
			r.Cpu.Cpus = a.Cpu.Cpus
		}
		if a.Cpu.GetQuota() != nil {
			r.Cpu.Quota = a.Cpu.Quota
		}
		if a.Cpu.GetShares() != nil {
			r.Cpu.Shares = a.Cpu.Shares
		}
		if a.Memory.GetLimit() != nil {
			r.Memory.Limit = a.Memory.Limit
		}
		r.Unified = a.Unified
	}
	if h.tree.Version != node.CgroupV2 {
		return
	}
	h.tree.Set(t, dir, "memory.max", fmt.Sprint(r.Memory.GetLimit().GetValue()))
	h.tree.Set(t, dir, "cpu.weight", fmt.Sprint(unit.Quadratic.Weight(unit.Shares(r.Cpu.GetShares().GetValue()))))
	quota := fmt.Sprint(r.Cpu.GetQuota().GetValue())
	if quota == "-1" {
		quota = "max"
	}
	h.tree.Set(t, dir, "cpu.max", quota+" 100000")
	if r.Cpu.Cpus != "" {
		h.tree.Set(t, dir, "cpuset.cpus", r.Cpu.Cpus)
	}
	for k, v := range r.Unified {
		h.tree.Set(t, dir, k, v)
	}
}

func (h *host) start(t testing.TB, sb *api.PodSandbox, ctr *api.Container) error {
	t.Helper()
	return h.rt.StartContainer(t.Context(), &api.StartContainerRequest{Pod: sb, Container: ctr})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls: the plugin is a real process to the runtime, with its own goroutines.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
		<-tick.C
	}
}

// testLog writes to the test's own log.
func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}
