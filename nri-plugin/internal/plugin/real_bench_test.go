// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/birth"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/probe"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
	kernelwire "github.com/koord-rt/koord-rt/kernel/wire"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/nri-plugin/internal/plugin"
)

// benchStrategy is test/bench's: burst, identity and memory QoS.
const benchStrategy = `
cpuBurstStrategy: {policy: auto, cpuBurstPercent: 1000}
resourceQOSStrategy:
  lsClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true, minLimitPercent: 20, lowLimitPercent: 30, throttlingPercent: 90}}
  beClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true, throttlingPercent: 80}}
`

// real is the plugin before this machine's own kernel: real cgroups, a real process, a real ledger on a tmpfs.
type real struct {
	plugin *plugin.Plugin
	engine *engine.Engine
	fs     cgroup.FS
	base   string // of the cgroups, removed at the end
	pid    int    // of the process that stands for every container's first one
	trees  []string
}

// newReal skips where the machine has no cgroup v1 or this process may not write there.
func newReal(b *testing.B) *real {
	b.Helper()
	r := &real{base: fmt.Sprintf("/koordrt-bench-%d", os.Getpid())}
	roots := root.Default()
	kernel, topology, memory, err := probe.Probe(b.Context(), roots, probe.Options{})
	if kernel.Cgroup != node.CgroupV1 || os.Getuid() != 0 {
		b.Skip("this needs root and cgroup v1")
	}
	must(b, err)
	processors := goruntime.GOMAXPROCS(0)
	run.TuneProcessors(os.Getenv, 1)
	must(b, run.TuneTimers(time.Millisecond))
	r.fs, err = cgroup.Open(roots, kernel.Cgroup, cgroup.Options{Weight: unit.Quadratic, PodWeight: unit.Linear})
	must(b, err)
	for _, k := range []plan.Knob{plan.CPUShares, plan.CPUSetCPUs, plan.MemoryLimit, plan.IOReadBPS} {
		if dir, err := r.fs.Dir(plan.Target{Cgroup: "/"}, k); err == nil {
			r.trees = append(r.trees, path.Clean(dir))
		}
	}
	dir, err := os.MkdirTemp("/dev/shm", "koordrt-bench")
	must(b, err)
	book, err := ledger.Open(dir, "nri", ledger.Options{})
	must(b, err)
	applier, err := apply.New(apply.Options{FS: r.fs, Roots: roots, Journal: book, Tasks: kernelwire.Tasks{FS: proc.FS(roots.Proc)}, KeepBursts: true})
	must(b, err)
	cfg := config.Default()
	spec, err := strategy.Parse([]byte(benchStrategy))
	must(b, err)
	m, err := metrics.NewEngine(prometheus.NewRegistry(), "nri")
	must(b, err)
	log := slog.New(slog.DiscardHandler)
	births := birth.New()
	r.engine = engine.New(engine.Options{
		Config: cfg.Node, Edge: plugin.Edge{Version: "bench"}, Log: log, Metrics: m, Journal: book, Kernel: applier,
		Views: engine.NewViews(cfg.Node, engine.Static{
			Name: "bench", Topology: topology, Kernel: kernel, CPUAllocatable: unit.MilliCPU(topology.All().Len() * 1000),
			MemCapacity: memory, MemAllocatable: memory, Weight: unit.Quadratic, PodWeight: unit.Linear,
		}, &spec, "bench"),
		Births: births, Live: &engine.Live{
			Resctrl: roots.Resctrl, CPUDir: roots.Cgroup + "/cpu", CPUSetDir: roots.Cgroup + "/cpuset", MemoryDir: roots.Cgroup + "/memory",
		},
	})
	r.plugin = plugin.New(plugin.Options{Config: cfg, Version: "bench", Log: log, Metrics: m, Engine: r.engine})
	_, err = r.plugin.Configure(b.Context(), "", "containerd", "v2.4.2")
	must(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var both sync.WaitGroup
		both.Go(func() { _ = births.Run(ctx) })
		_ = r.engine.Run(ctx, func(context.Context) {})
		both.Wait()
	}()
	p, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{})
	must(b, err)
	r.pid = p.Pid
	b.Cleanup(func() {
		cancel()
		<-done
		goruntime.GOMAXPROCS(processors)
		must(b, run.TuneTimers(50*time.Microsecond)) // what the kernel gives
		must(b, book.Close())
		must(b, os.RemoveAll(dir))
		_ = p.Kill()
		_, _ = p.Wait()
		for _, tree := range r.trees {
			must(b, removeTree(tree+r.base))
		}
	})
	return r
}

// crowd is how many other containers have cgroups: the kernel walks over all of them when one gets a quota or a burst.
const crowd = 250

func (r *real) fill(b *testing.B) {
	b.Helper()
	for i := range crowd {
		dir := fmt.Sprintf("%s/kubepods/burstable/podcrowd%d/c%d", r.base, i/10, i)
		r.mkdir(b, dir)
		r.write(b, dir, plan.CPUQuota, 100000)
	}
}

// removeTree removes a cgroup and those below it.
func removeTree(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	for _, d := range slices.Backward(dirs) {
		err = errors.Join(err, os.Remove(d))
	}
	return err
}

// mkdir makes a cgroup in every hierarchy, with what it takes to put a process into it.
func (r *real) mkdir(b *testing.B, dir string) {
	b.Helper()
	for _, tree := range r.trees {
		for i, c := range dir {
			if i == 0 || c != '/' {
				continue
			}
			r.level(b, tree+dir[:i])
		}
		r.level(b, tree+dir)
	}
}

func (r *real) level(b *testing.B, dir string) {
	b.Helper()
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
		return
	}
	for _, f := range []string{"/cpuset.cpus", "/cpuset.mems"} {
		if parent, err := root.Read(path.Dir(dir) + f); err == nil {
			must(b, root.Write(dir+f, parent))
		}
	}
}

func (r *real) write(b *testing.B, dir string, k plan.Knob, v int64) {
	b.Helper()
	file, err := r.fs.Path(plan.Target{Cgroup: dir}, k)
	must(b, err)
	must(b, root.Write(file, strconv.FormatInt(v, 10)))
}

// runc makes the container's cgroup by its spec and puts a process into it.
func (r *real) runc(b *testing.B, ctr *api.Container, adj *api.ContainerAdjustment) {
	b.Helper()
	dir := ctr.Linux.CgroupsPath
	r.mkdir(b, dir)
	for _, tree := range r.trees {
		must(b, root.Write(tree+dir+"/cgroup.procs", strconv.Itoa(r.pid)))
	}
	res := ctr.Linux.Resources
	shares, quota, memory := res.Cpu.GetShares().GetValue(), res.Cpu.GetQuota().GetValue(), res.Memory.GetLimit().GetValue()
	if a := adj.GetLinux().GetResources(); a != nil {
		if a.Cpu.GetShares() != nil {
			shares = a.Cpu.Shares.Value
		}
		if a.Cpu.GetQuota() != nil {
			quota = a.Cpu.Quota.Value
		}
		if a.Memory.GetLimit() != nil {
			memory = a.Memory.Limit.Value
		}
	}
	if shares > 0 {
		r.write(b, dir, plan.CPUShares, int64(shares))
	}
	r.write(b, dir, plan.CPUPeriod, 100000)
	r.write(b, dir, plan.CPUQuota, quota)
	r.write(b, dir, plan.MemoryLimit, memory)
	ctr.Pid = uint32(r.pid)
}

// evict replaces what the processor's own caches hold, as the runtime, runc and the shim do between two events.
func evict(junk []byte) {
	for i := 0; i < len(junk); i += 64 {
		junk[i]++
	}
}

// breath is longer than the engine leaves its jobs lying, as runc is.
const breath = 15 * time.Millisecond

// BenchmarkReal is CreateContainer, StartContainer and an LS container's UpdateContainer to a smaller quota on this machine's kernel (root,
// cgroup v1), each time with a new container and its new cgroup, and what runc does between them; "cold" with the processor's caches
// overwritten before each event. Each event has a goroutine of its own, as a request has. It runs with one processor, as koord-nri does,
// unless GOMAXPROCS says otherwise. p50, p90 and p99 in µs.
func BenchmarkReal(b *testing.B) {
	for _, class := range []string{"LS", "BE"} {
		b.Run(class+"/warm", func(b *testing.B) { newReal(b).run(b, class, nil) })
		b.Run(class+"/cold", func(b *testing.B) { newReal(b).run(b, class, make([]byte, 16<<20)) })
	}
}

func (r *real) run(b *testing.B, class string, junk []byte) {
	b.Helper()
	sb := &api.PodSandbox{
		Id: "sandbox", Name: "pod", Uid: "uid", Namespace: "default", Labels: map[string]string{protocol.LabelQoSClass: class},
		Linux: &api.LinuxPodSandbox{CgroupParent: r.base + "/kubepods/burstable/poduid", PodResources: resources(1024, 200000, 1<<30)},
	}
	if class == "BE" {
		sb.Linux.CgroupParent = r.base + "/kubepods/besteffort/poduid"
		sb.Annotations = map[string]string{protocol.AnnotationExtendedResource: batch}
	}
	r.fill(b)
	r.mkdir(b, sb.Linux.CgroupParent)
	must(b, r.plugin.RunPodSandbox(b.Context(), sb))
	var creates, starts, updates []time.Duration
	for b.Loop() {
		ctr := ctrOf(sb, "app")
		ctr.Id += strconv.Itoa(len(starts))
		ctr.Linux.CgroupsPath = sb.Linux.CgroupParent + "/" + ctr.Id
		time.Sleep(breath)
		evict(junk)
		var adj *api.ContainerAdjustment
		creates = append(creates, request(b, func() (err error) {
			adj, _, err = r.plugin.CreateContainer(b.Context(), sb, ctr)
			return err
		}))
		time.Sleep(breath) // until it is expected
		r.runc(b, ctr, adj)
		time.Sleep(breath)
		evict(junk)
		starts = append(starts, request(b, func() error { return r.plugin.StartContainer(b.Context(), sb, ctr) }))
		if class == "LS" {
			updates = append(updates, r.shrink(b, sb, ctr, junk))
		}
		if _, err := r.plugin.StopContainer(b.Context(), sb, ctr); err != nil {
			b.Fatal(err)
		}
		must(b, r.plugin.RemoveContainer(b.Context(), sb, ctr))
		for _, tree := range r.trees {
			must(b, root.Write(tree+"/cgroup.procs", strconv.Itoa(r.pid)))
			must(b, os.Remove(tree+ctr.Linux.CgroupsPath))
		}
	}
	if n := r.engine.Status(); len(n.ProofFailures) > 0 || len(n.Problems) > 0 {
		b.Fatalf("not all went well: %+v %+v", n.ProofFailures, n.Problems)
	}
	b.ReportMetric(0, "ns/op")
	quantiles(b, creates, "create")
	quantiles(b, starts, "start")
	if len(updates) > 0 {
		quantiles(b, updates, "update")
	}
}

// shrink takes a running container's quota to the half, as the kubelet's resize does.
func (r *real) shrink(b *testing.B, sb *api.PodSandbox, ctr *api.Container, junk []byte) time.Duration {
	b.Helper()
	quota := ctr.Linux.Resources.Cpu.Quota.Value / 2
	smaller := resources(512, quota, 1<<30)
	time.Sleep(breath)
	evict(junk)
	took := request(b, func() error {
		_, err := r.plugin.UpdateContainer(b.Context(), sb, ctr, smaller)
		return err
	})
	r.write(b, ctr.Linux.CgroupsPath, plan.CPUQuota, quota) // EINVAL below the burst
	must(b, r.plugin.PostUpdateContainer(b.Context(), sb, ctr))
	return took
}

// request is how long a call takes on a goroutine that is made for it. koord-nri's begin with a stack that is deep enough, which the collector
// sees to (runtime.gcComputeStartingStackSize); here its heap is small and it comes too rarely.
func request(b *testing.B, call func() error) time.Duration {
	b.Helper()
	var (
		took time.Duration
		err  error
		done = make(chan struct{})
	)
	go func() {
		defer close(done)
		deepen()
		begin := time.Now()
		err = call()
		took = time.Since(begin)
	}()
	<-done
	must(b, err)
	return took
}

func quantiles(b *testing.B, took []time.Duration, what string) {
	b.Helper()
	slices.Sort(took)
	at := func(p float64) float64 { return float64(took[int(float64(len(took)-1)*p)].Nanoseconds()) / 1000 }
	b.ReportMetric(at(0.5), what+"-p50-µs")
	b.ReportMetric(at(0.9), what+"-p90-µs")
	b.ReportMetric(at(0.99), what+"-p99-µs")
}

// deepen has a goroutine's stack grow before the time counts.
//
//go:noinline
func deepen() {
	var room [24 << 10]byte
	goruntime.KeepAlive(&room)
}
