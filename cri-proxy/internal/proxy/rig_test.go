// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/mode"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/proxy"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/drift"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// fakeKernel holds what was written last, and can be made to differ.
type fakeKernel struct {
	mu      sync.Mutex
	written plan.Plan
	differ  bool
}

func (k *fakeKernel) Apply(_ context.Context, p plan.Plan, _ uint64) []apply.Result {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]apply.Result, len(p))
	for i := range p {
		k.written = append(k.written, p[i])
		out[i] = apply.Result{Setting: p[i], Outcome: apply.Written}
	}
	return out
}

func (k *fakeKernel) Verify(p plan.Plan) (bad []apply.Mismatch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.differ {
		for i := range p {
			bad = append(bad, apply.Mismatch{Setting: p[i]})
		}
	}
	return bad
}

func (k *fakeKernel) SyncUnits(context.Context, plan.Plan, uint64) []apply.Result { return nil }

func (k *fakeKernel) Sources(context.Context, []apply.Stray) []drift.Source { return nil }

func (k *fakeKernel) Forget(...plan.Target) error { return nil }

func (k *fakeKernel) Last(plan.ID) (plan.Value, bool) { return plan.Value{}, false }

// last is what was written last of a container's knob.
func (k *fakeKernel) last(container string, knob plan.Knob) (int64, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range slices.Backward(k.written) {
		if s.Target.Container == container && s.Knob == knob {
			return s.Value.Int(), true
		}
	}
	return 0, false
}

type book struct {
	mu   sync.Mutex
	list []journal.Record
}

func (b *book) Append(r ...journal.Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, r...)
	return nil
}

func (b *book) problem(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.list, func(r journal.Record) bool {
		return r.Via == journal.ViaProblem && strings.Contains(r.Reason, text)
	})
}

// rig is a kubelet's client, the relay with a proxy, and a fake runtime.
type rig struct {
	runtimeapi.RuntimeServiceClient
	fake   *fakeRuntime
	server *relay.Server
	// backend is the runtime's end, at socket.
	backend *grpc.Server
	socket  string
	kernel  *fakeKernel
	book    *book
	engine  *engine.Engine
	reg     *prometheus.Registry
	plugin  atomic.Bool
	// inDecision, when set, is called by decisions that ask for the plugin.
	inDecision atomic.Pointer[func()]
}

const spec = "cpuBurstStrategy: {policy: cpuBurstOnly, cpuBurstPercent: 100}\nresourceQOSStrategy:\n  beClass: {cpuQOS: {enable: true, groupIdentity: -1}}\n"

func newRig(t *testing.T, change ...func(*config.Proxy)) *rig {
	t.Helper()
	return newRigOn(t, node.CgroupV2, nil, change...)
}

// newRigOn is newRig on another kind of node.
func newRigOn(t *testing.T, version node.CgroupVersion, live *engine.Live, change ...func(*config.Proxy)) *rig {
	t.Helper()
	return newRigAt(t, "", version, live, change...)
}

// newRigAt is newRigOn with a runtime that serves at a socket; "" is the fake one.
func newRigAt(t *testing.T, socket string, version node.CgroupVersion, live *engine.Live, change ...func(*config.Proxy)) *rig {
	t.Helper()
	return newRigOf(t, &fakeRuntime{}, socket, version, live, change...)
}

// newRigOf is newRigAt with a fake runtime. Clients are not made to wait for the list of one that does not tell its name.
func newRigOf(t *testing.T, fake *fakeRuntime, socket string, version node.CgroupVersion, live *engine.Live, change ...func(*config.Proxy)) *rig {
	t.Helper()
	fake.sandboxes, fake.containers = map[string]*runtimeapi.PodSandboxConfig{}, map[string]*runtimeapi.ContainerStatus{}
	r := &rig{fake: fake, kernel: &fakeKernel{}, book: &book{}, reg: prometheus.NewRegistry()}
	dir := t.TempDir()
	if r.socket = socket; socket == "" {
		r.socket = filepath.Join(dir, "r.sock")
		r.serve(t)
	}
	list, err := cri.NewLister("unix://" + r.socket)
	must(t, err)
	t.Cleanup(func() { must(t, list.Close()) })
	m, err := metrics.NewEngine(r.reg, "cri")
	must(t, err)
	cfg := config.DefaultProxy()
	cfg.Deadline, cfg.Hooks.Dir = config.Duration(5*time.Second), dir // a loaded machine must not make a decision late
	cfg.Reconnect.Min = config.Duration(10 * time.Millisecond)
	for _, f := range change {
		f(&cfg)
	}
	parsed, err := strategy.Parse([]byte(spec))
	must(t, err)
	static := engine.Static{Name: "n", Weight: unit.Quadratic, CPUAllocatable: 4000, Topology: &topo.Topology{}, Kernel: node.Kernel{
		Release: "6.8", Major: 6, Minor: 8, Cgroup: version,
	}}
	for _, k := range []plan.Knob{plan.CPUBurst, plan.CPUQuota, plan.CPUShares, plan.CPUPeriod, plan.MemoryLimit, plan.SchedPolicy, plan.OOMScoreAdj, plan.CDIDevice} {
		static.Kernel.Knobs[k].OK = true
	}
	r.engine = engine.New(engine.Options{
		Config: cfg.Node, Log: slog.New(slog.DiscardHandler), Metrics: m, Edge: proxy.Edge{Version: "test"}, Journal: r.book, Kernel: r.kernel, Live: live,
		Views: engine.NewViews(cfg.Node, static, &parsed, "test"), ExitsUntold: true, Drift: time.Hour, Join: hooks.Join(cfg.Hooks, slog.New(slog.DiscardHandler)),
		Beside: func() bool {
			if f := r.inDecision.Load(); f != nil {
				(*f)()
			}
			return r.plugin.Load()
		},
	})
	p := proxy.New(proxy.Options{Options: mode.Options{
		Config: cfg, Version: "test", Log: slog.New(slog.DiscardHandler), Metrics: m, Engine: r.engine, Hooks: hooks.New(hooks.Options{Config: cfg.Hooks}),
	}, List: list, Plugin: r.plugin.Load})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.engine.Run(ctx, p.Connect) }()
	t.Cleanup(func() { cancel(); must(t, <-done) })
	if !fake.nameless.Load() {
		<-p.Synced()
	}
	p.Serving()
	r.dial(t, r.relay(t, p, filepath.Join(dir, "p.sock")))
	return r
}

// serve begins a life of the runtime.
func (r *rig) serve(t *testing.T) {
	t.Helper()
	l, err := net.Listen("unix", r.socket)
	must(t, err)
	s := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s, r.fake)
	go func() { _ = s.Serve(l) }() // until Stop
	t.Cleanup(s.Stop)
	r.backend = s
}

func (r *rig) relay(t *testing.T, p *proxy.Proxy, socket string) string {
	t.Helper()
	s, err := relay.New(relay.Config{
		Dial:    func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", r.socket) },
		Handler: p,
	})
	must(t, err)
	r.server = s
	l, err := net.Listen("unix", socket)
	must(t, err)
	go func() { _ = s.Serve(context.Background(), l) }() // until Shutdown
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Shutdown(ctx) // cuts what is left
		s.Wait()
	})
	return socket
}

func (r *rig) dial(t *testing.T, socket string) {
	t.Helper()
	c, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	r.RuntimeServiceClient = runtimeapi.NewRuntimeServiceClient(c)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

func (r *rig) counted(t *testing.T, name, label string) (n float64) {
	t.Helper()
	families, err := r.reg.Gather()
	must(t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if f.GetName() == name && l.GetValue() == label {
					n += m.Counter.GetValue()
				}
			}
		}
	}
	return n
}

// afterStart is how many starts were measured whose values came after them.
func (r *rig) afterStart(t *testing.T) uint64 {
	t.Helper()
	families, err := r.reg.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() == "koord_rt_cri_after_start_seconds" {
			return f.Metric[0].Histogram.GetSampleCount()
		}
	}
	t.Fatal("no such metric")
	return 0
}

// events are those whose handler has ended.
func (r *rig) events(t *testing.T, name string) uint64 {
	t.Helper()
	families, err := r.reg.Gather()
	must(t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "koord_rt_cri_event_duration_seconds" && m.Label[0].GetValue() == name {
				return m.Histogram.GetSampleCount()
			}
		}
	}
	return 0
}

// podOf is a pod's configuration; qos is Koordinator's.
func podOf(name, qos string, annotations map[string]string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		Labels:      map[string]string{protocol.LabelQoSClass: qos},
		Annotations: annotations,
		Linux:       &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kubepods/burstable/pod" + name},
	}
}

// pod runs a sandbox.
func (r *rig) pod(t *testing.T, name, qos string, annotations map[string]string) (string, *runtimeapi.PodSandboxConfig) {
	t.Helper()
	cfg := podOf(name, qos, annotations)
	reply, err := r.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: cfg})
	must(t, err)
	return reply.PodSandboxId, cfg
}

func createOf(sandbox string, cfg *runtimeapi.PodSandboxConfig) *runtimeapi.CreateContainerRequest {
	return &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox, SandboxConfig: cfg, Config: &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
		Linux:    &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 50000, CpuShares: 204}},
	}}
}
