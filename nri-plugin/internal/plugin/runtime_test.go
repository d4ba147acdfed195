// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
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

// shortestWait and longestWait are between two tries to connect.
const shortestWait, longestWait = 10 * time.Millisecond, 50 * time.Millisecond

// slowKernel holds Verify, and Apply, until a test says.
type slowKernel struct {
	engine.Kernel
	mu    sync.Mutex
	until <-chan struct{} // Verify waits for it; nil holds nothing
	panic bool
	dead  bool          // its process was killed: nothing reaches the kernel any more
	hold  chan struct{} // closed by a test; nil holds nothing. Set before the plugin runs
	held  atomic.Int32  // how many Apply have met hold
}

func (k *slowKernel) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	k.mu.Lock()
	dead := k.dead
	k.mu.Unlock()
	if dead {
		return nil
	}
	if k.hold != nil {
		k.held.Add(1)
		<-k.hold
	}
	return k.Kernel.Apply(ctx, p, gen)
}

func (k *slowKernel) set(until <-chan struct{}, panics bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.until, k.panic = until, panics
}

func (k *slowKernel) Verify(p plan.Plan) []apply.Mismatch {
	k.mu.Lock()
	until, panics := k.until, k.panic
	k.mu.Unlock()
	if panics {
		panic("kernel went away")
	}
	if until != nil {
		<-until
	}
	return k.Kernel.Verify(p)
}

// deadline is long: a loaded machine must not make a decision late.
const deadline = 10 * time.Second

// host is one machine: fake kernel, runtime, and our plugin.
type host struct {
	machine *enginetest.Machine
	tree    *kerneltest.Tree
	journal *enginetest.Journal
	socket  string
	rt      *runtime
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

// known makes what it has before somebody connects.
func newRuntime(t testing.TB, socket string, known ...func(*runtime)) *runtime {
	t.Helper()
	r := &runtime{wire: listen(t, socket)}
	for _, f := range known {
		f(r)
	}
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
	m := enginetest.New(t, kernel, "/kubepods/burstable", "/kubepods/besteffort")
	h := &host{lister: list, machine: m, tree: m.Tree, journal: m.Journal, socket: path.Join(t.TempDir(), "nri.sock")}
	cfg := config.Default()
	cfg.Socket, cfg.RunDir = h.socket, t.TempDir()
	cfg.Reconnect = config.Reconnect{Min: config.Duration(shortestWait), Max: config.Duration(longestWait)}
	cfg.Deadline = config.Duration(deadline)
	o := m.Options(t, cfg.Node, plugin.Edge{Version: "test"}, nodeStrategy, hostKnobs()...)
	h.kernel = &slowKernel{Kernel: o.Kernel}
	h.views = o.Views
	o.Kernel, o.List, o.Live = h.kernel, h.lister, &engine.Live{Resctrl: h.tree.Roots.Resctrl}
	o.CgroupRoot, o.Drift = h.tree.Roots.Cgroup, time.Hour // so that no drift check stands in for what an event is to bring about
	if _, ok := t.(*testing.B); ok {
		o.Drift = 10 * time.Second // as in production
	}
	for _, f := range change {
		f(h, &o)
	}
	h.engine = engine.New(o)
	h.plugin = plugin.New(plugin.Options{Config: cfg, Version: "test", Log: o.Log, Metrics: o.Metrics, Engine: h.engine})
	return h
}

// checked makes the drift check frequent, for what only it brings about.
func checked(_ *host, o *engine.Options) { o.Drift = 50 * time.Millisecond }

// hostKnobs are those that the tests look at.
func hostKnobs() []plan.Knob {
	return []plan.Knob{
		plan.CPUShares, plan.CPUQuota, plan.CPUPeriod, plan.CPUBurst, plan.CPUIdle, plan.CPUSetCPUs, plan.CPUSetMems,
		plan.MemoryLimit, plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh, plan.MemoryOOMGroup,
	}
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
	enginetest.Eventually(t, "synchronize", func() bool { return h.rt.syncs() > 0 && h.engine.Connected() })
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
