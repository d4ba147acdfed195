// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// touched is a kernel that keeps the names of the pods that it is asked to do something for.
type touched struct {
	wishes
	mu   sync.Mutex // repair works on several containers at a time
	pods map[string]bool
}

// Apply implements Kernel.
func (k *touched) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range p {
		if t := &p[i].Target; t.Level == plan.LevelPod || t.Level == plan.LevelContainer {
			k.pods[strings.Split(t.Name, "/")[1]] = true
		}
	}
	return k.wishes.Apply(ctx, p, gen)
}

// since are the pods since the last call.
func (k *touched) since() []string {
	out := slices.Sorted(maps.Keys(k.pods))
	clear(k.pods)
	return out
}

// crowd is an engine with two LS pods and a BE pod of one container each. It does not run: the test calls its passes.
func crowd(t *testing.T) (*Engine, *touched) {
	t.Helper()
	m, err := metrics.NewEngine(prometheus.NewRegistry(), "test")
	if err != nil {
		t.Fatal(err)
	}
	var cpus []topo.CPU
	for i := range 8 {
		cpus = append(cpus, topo.CPU{ID: i, Core: i})
	}
	static := Static{Name: "n", Topology: topo.New(cpus, topo.CPUs(0)), Kernel: node.Kernel{Major: 6, Minor: 12, Cgroup: node.CgroupV2}}
	for _, k := range []plan.Knob{plan.CPUQuota, plan.CPUSetCPUs, plan.MemoryHigh} {
		static.Kernel.Knobs[k].OK = true
	}
	cfg := config.Default().Node
	k := &touched{pods: map[string]bool{}}
	g := New(Options{
		Config: cfg, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: m, Edge: noMark{}, Journal: nowhere{}, Kernel: k,
		Views: NewViews(cfg, static, nil, "test"),
	})
	var pods []*workload.Pod
	var containers []Listed
	for name, class := range map[string]protocol.QoS{"ls1": protocol.QoSLS, "ls2": protocol.QoSLS, "be": protocol.QoSBE} {
		p := &workload.Pod{
			ID: "s-" + name, UID: name, Namespace: "default", Name: name, KubeQoS: protocol.KubeBurstable, Ask: protocol.Ask{QoS: class},
			Cgroup: "/kubepods/burstable/pod" + name, QoSCgroup: "/kubepods/burstable", Base: workload.Resources{Quota: unit.Some(200000)},
		}
		c := &workload.Container{
			ID: "c-" + name, Name: "app", Cgroup: p.Cgroup + "/c", State: workload.StateRunning, Base: workload.Resources{Quota: unit.Some(200000)},
		}
		pods = append(pods, p)
		containers = append(containers, Listed{Sandbox: p.ID, Arrival: Arrival{ID: c.ID, Read: func(...*protocol.Applied) *workload.Container { return c }}})
	}
	g.Synchronize(pods, containers)
	return g, k
}

// What the agent decides anew is written for those whom it bears on; everything else that changes, for everybody.
func TestReach(t *testing.T) {
	t.Parallel()
	g, k := crowd(t)
	state := node.Dynamic{
		Known: true, BECPUs: topo.Range(0, 3),
		Quotas: map[string]node.QuotaLoop{"ls1": {Cap: 1000}, "ls2": {Cap: 1000}, "be": {Cap: 1000}},
	}
	tell := func(change func(*node.Dynamic)) {
		change(&state)
		d := state
		d.Quotas, d.MemoryHigh = maps.Clone(state.Quotas), maps.Clone(state.MemoryHigh)
		g.Views().SetHandoff(handoff.Snapshot{Dynamic: d})
	}
	quota := func(pod string) int64 {
		e, _ := g.reg.container("c-" + pod)
		return e.plan.Get(plan.CPUQuota).Value.Int()
	}
	everybody := []string{"be", "ls1", "ls2"}
	for _, step := range []struct {
		what   string
		change func()
		want   []string
	}{
		{"at first", func() { tell(func(*node.Dynamic) {}) }, everybody},
		{"nothing", func() { tell(func(*node.Dynamic) {}) }, nil},
		{"a cap", func() { tell(func(d *node.Dynamic) { d.Quotas["ls1"] = node.QuotaLoop{Cap: 500} }) }, []string{"ls1"}},
		{"a suppression set", func() { tell(func(d *node.Dynamic) { d.BECPUs = topo.Range(0, 1) }) }, []string{"be"}},
		{"a memory.high", func() {
			tell(func(d *node.Dynamic) { d.MemoryHigh = map[string]node.MemoryHigh{"c-ls2": {Bytes: 1 << 30}} })
		}, []string{"ls2"}},
		{"an OOM score", func() {
			tell(func(d *node.Dynamic) { d.OOMScores = map[string]node.OOMScore{"c-ls2": {Score: 943}} })
		}, []string{"ls2"}},
		{"two before the pass", func() {
			tell(func(d *node.Dynamic) { d.Quotas["ls1"] = node.QuotaLoop{Cap: 700} })
			tell(func(d *node.Dynamic) { d.BECPUs = topo.Range(0, 3) })
		}, []string{"be", "ls1"}},
		{"there and back", func() {
			tell(func(d *node.Dynamic) { d.Quotas["ls1"] = node.QuotaLoop{Cap: 100} })
			tell(func(d *node.Dynamic) { d.Quotas["ls1"] = node.QuotaLoop{Cap: 700} })
		}, nil},
		{"so many that nobody remembers", func() {
			for i := range 2 * maxPast {
				tell(func(d *node.Dynamic) { d.Quotas["ls1"] = node.QuotaLoop{Cap: unit.MilliCPU(800 + i%2)} })
			}
		}, everybody},
		{"a ratio", func() { tell(func(d *node.Dynamic) { d.Normalization = 120 }) }, everybody},
		{"a strategy", func() { g.Views().SetFile(&strategy.Spec{}, "file") }, everybody},
		{"a cap after it", func() { tell(func(d *node.Dynamic) { d.Quotas["ls2"] = node.QuotaLoop{Cap: 600} }) }, []string{"ls2"}},
		{"a strategy, and a cap before the pass", func() {
			g.Views().SetFile(&strategy.Spec{}, "another file")
			tell(func(d *node.Dynamic) { d.Quotas["ls2"] = node.QuotaLoop{Cap: 900} })
		}, everybody},
	} {
		step.change()
		g.repairAll(t.Context(), false, g.whole.Swap(false))
		if diff := cmp.Diff(step.want, k.since()); diff != "" {
			t.Errorf("%s: written for (-want +got):\n%s", step.what, diff)
		}
		for pod, loop := range state.Quotas {
			if got := quota(pod); got != int64(loop.Cap)*100 {
				t.Errorf("%s: the quota of %s is %d, the cap %d", step.what, pod, got, loop.Cap)
			}
		}
	}
	// A pass over the whole looks at everybody, whatever has changed.
	tell(func(d *node.Dynamic) { d.Quotas["ls2"] = node.QuotaLoop{Cap: 500} })
	g.repairSoon()
	g.repairAll(t.Context(), false, g.whole.Swap(false))
	if diff := cmp.Diff(everybody, k.since()); diff != "" {
		t.Errorf("the whole (-want +got):\n%s", diff)
	}
}

// The roster is made anew when somebody came, went, or is another value, and at no other time.
func TestRoster(t *testing.T) {
	t.Parallel()
	g, _ := crowd(t)
	names := func(members []Member) (out []string) {
		for _, m := range members {
			out = append(out, m.Pod.UID)
			for _, c := range m.Containers {
				out = append(out, c.ID)
			}
		}
		return out
	}
	_, last := g.Roster()
	pod := &workload.Pod{ID: "s-new", UID: "new", Namespace: "default", Name: "new", Cgroup: "/kubepods/podnew"}
	ctr := func() Listed {
		return Listed{Sandbox: "s-new", Arrival: Arrival{ID: "c-new", Read: func(...*protocol.Applied) *workload.Container {
			return &workload.Container{ID: "c-new", Cgroup: "/kubepods/podnew/c", State: workload.StateRunning}
		}}}
	}
	three := []string{"be", "c-be", "ls1", "c-ls1", "ls2", "c-ls2"}
	for _, step := range []struct {
		what  string
		do    func()
		grows bool
		want  []string
	}{
		{"asked again", func() {}, false, three},
		{"decided again", func() { g.repairAll(t.Context(), true, true) }, false, three},
		{"a pod", func() { g.Add([]*workload.Pod{pod}, nil) }, true, append(slices.Clone(three), "new")},
		{"its container", func() { g.Add([]*workload.Pod{pod}, []Listed{ctr()}) }, true, append(slices.Clone(three), "new", "c-new")},
		{"the same list", func() { g.Add([]*workload.Pod{pod}, []Listed{ctr()}) }, false, append(slices.Clone(three), "new", "c-new")},
		{"it ends", func() { g.Stop("c-new") }, true, append(slices.Clone(three), "new")},
		{"it goes", func() { g.Remove("c-new") }, true, append(slices.Clone(three), "new")},
		{"the pod ends", func() { g.StopPod("s-new") }, true, three},
		{"the pod goes", func() { g.RemovePod("s-new") }, true, three},
		{"another list", func() { g.Synchronize(nil, nil) }, true, nil},
	} {
		step.do()
		members, now := g.Roster()
		if diff := cmp.Diff(step.want, names(members)); diff != "" || (now != last) != step.grows {
			t.Errorf("%s: generation %d after %d, members (-want +got):\n%s", step.what, now, last, diff)
		}
		last = now
	}
}
