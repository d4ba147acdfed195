// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"log/slog"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// claimCase is a list that an engine is told which has just started; marks are what an earlier life wrote.
type claimCase struct {
	pods  map[string]string            // name -> class and CPUs of the scheduler
	marks map[string]map[string]string // name -> what the mark says
	want  map[string]string
	// freed is what stands after the first container of this pod has ended.
	ends  string
	freed map[string]string
}

// Of claims that exclude each other one stands after a start, that of whoever held its CPUs before; when it ends, the other gets its.
func TestClaimsOfAList(t *testing.T) {
	t.Parallel()
	held := map[string]string{"cpuset.cpus": "1 cpuset", "cpu.quota": "-1 cpuset"}
	refused := map[string]string{"cpuset.cpus": "0 cpuset"}
	for name, c := range map[string]claimCase{
		"more than the node allows": {
			pods: map[string]string{"a": "LSR 0", "b": "LSR 1"},
			want: map[string]string{"a": "0"},
			ends: "a", freed: map[string]string{"b": "1"},
		},
		"more than the node allows, the second by name holds its CPU": {
			pods:  map[string]string{"a": "LSR 0", "b": "LSR 1"},
			marks: map[string]map[string]string{"a": refused, "b": held},
			want:  map[string]string{"b": "1"},
			ends:  "b", freed: map[string]string{"a": "0"},
		},
		"one CPU twice": {
			pods:  map[string]string{"a": "LSE 1", "b": "LSE 1"},
			marks: map[string]map[string]string{"b": held},
			want:  map[string]string{"b": "1"},
			ends:  "b", freed: map[string]string{"a": "1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := halved(t)
			var pods []*workload.Pod
			var list []Listed
			for _, pod := range []string{"b", "a"} {
				p := lsr(pod)
				class, cpus := c.pods[pod][:3], c.pods[pod][4:]
				p.Ask.QoS, _ = protocol.ParseQoS(class)
				p.Ask.ResourceStatus = &protocol.ResourceStatus{CPUSet: cpus}
				pods = append(pods, p)
				one := workload.Container{ID: "c-" + pod, Name: "app", State: workload.StateRunning, Cgroup: p.Cgroup + "/c"}
				one.Base.Quota = unit.Some(100000)
				if set := c.marks[pod]; set != nil {
					one.Applied = &protocol.Applied{Set: set}
				}
				list = append(list, Listed{Sandbox: p.ID, Arrival: Arrival{ID: one.ID, Read: func(...*protocol.Applied) *workload.Container { c := one; return &c }}})
			}
			g.Synchronize(pods, list)
			compareClaims(t, g, "after the start", c.want)
			g.Stop("c-" + c.ends)
			compareClaims(t, g, "after the end of "+c.ends, c.freed)
		})
	}
}

func compareClaims(t *testing.T, g *Engine, when string, want map[string]string) {
	t.Helper()
	v := g.views.Load()
	for _, it := range g.reg.running() {
		name := it.pod.p.Name
		pl := g.decide(v, it.pod.p, it.c)
		own := v.Claims.ByPod[it.pod.p.UID]
		if got := own.LSE.Union(own.LSR).String(); got != want[name] {
			t.Errorf("%s: %s claims %q, want %q", when, name, got, want[name])
		}
		if s := pl.Get(plan.CPUQuota); (s != nil && s.Value.Int() == -1) != (want[name] != "") {
			t.Errorf("%s: %s is planned\n%s", when, name, pl)
		}
	}
}

// pinned is a pod that the scheduler has given CPUs, and its container before its creation.
func pinned(name, class, cpus string) (Sandbox, *workload.Container) {
	p := lsr(name)
	p.Ask.QoS, _ = protocol.ParseQoS(class)
	p.Ask.ResourceStatus = &protocol.ResourceStatus{CPUSet: cpus}
	c := &workload.Container{ID: "c-" + name, Name: "app", Cgroup: p.Cgroup + "/c", State: workload.StateCreating}
	c.Base.Quota = unit.Some(100000)
	return Sandbox{ID: p.ID, Read: func() *workload.Pod { return p }}, c
}

// Of two creations that were decided under one View, and whose claims exclude each other, the first claims and the second is decided
// anew.
func TestClaimsOfCreationsAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string][2]string{
		"more than the node allows": {"LSR 0", "LSR 1"},
		"one CPU twice":             {"LSE 1", "LSE 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := halved(t)
			var creations []*Creation
			for i, pod := range []string{"a", "b"} {
				sb, ctr := pinned(pod, c[i][:3], c[i][4:])
				creations = append(creations, g.Decide(sb, ctr))
			}
			for i, cr := range creations {
				var spec plan.Plan
				if err := cr.Create(t.Context(), func(_ *node.View, pl plan.Plan) plan.Plan { spec = pl; return nil }); err != nil {
					t.Fatal(err)
				}
				if s := spec.Get(plan.CPUQuota); (s != nil && s.Value.Int() == -1) != (i == 0) {
					t.Errorf("creation %d is specified\n%s", i, spec)
				}
			}
			for i, want := range []string{c[0][4:], ""} {
				e, _ := g.reg.container(creations[i].e.c.ID)
				own := g.views.Load().Claims.ByPod[creations[i].pod.UID]
				if got := e.lse.Union(e.lsr).String(); got != want || own.LSE.Union(own.LSR).String() != want {
					t.Errorf("creation %d claims %q, which is %v in the View; want %q", i, got, own, want)
				}
			}
		})
	}
}

// Of two containers that start at once, that nobody has created before us, and whose claims exclude each other, one claims. Each is
// read before either has claimed; which of them then is first is luck, so it is done often.
func TestClaimsOfStartsAtOnce(t *testing.T) {
	t.Parallel()
	for range 100 {
		g := halved(t)
		var read, done sync.WaitGroup
		read.Add(2)
		for _, name := range []string{"a", "b"} {
			sb, ctr := pinned(name, "LSE", "1")
			ctr.State = workload.StateCreated
			done.Go(func() {
				g.entryOf(g.podOf(sb), sb, Arrival{ID: ctr.ID, Read: func(...*protocol.Applied) *workload.Container {
					read.Done()
					read.Wait()
					return ctr
				}})
			})
		}
		done.Wait()
		if v := g.views.Load(); len(v.Claims.ByPod) != 1 || v.Claims.LSE.String() != "1" {
			t.Fatalf("claims %+v, want one pod's", v.Claims)
		}
	}
}

// What was claimed before the specification was made is free again when that panics, and the claims anew in between stand.
func TestClaimBeforeTheSpecification(t *testing.T) {
	t.Parallel()
	g := halved(t)
	sb, ctr := pinned("a", "LSE", "1")
	create := func(render Render) (panicked any) {
		defer func() { panicked = recover() }()
		if err := g.Create(t.Context(), sb, ctr, render); err != nil {
			t.Error(err)
		}
		return nil
	}
	if create(func(*node.View, plan.Plan) plan.Plan { panic("a request that is none") }) == nil {
		t.Error("no panic")
	}
	if _, known := g.reg.container(ctr.ID); known || len(g.views.Load().Claims.ByPod) > 0 {
		t.Errorf("kept: container %v, claims %v", known, g.views.Load().Claims)
	}
	create(func(*node.View, plan.Plan) plan.Plan {
		g.reg.changeContainer(ctr.ID, func(e *entry) { e.lse = topo.CPUSet{} }) // as reclaim does
		return nil
	})
	if e, known := g.reg.container(ctr.ID); !known || e.claims() || !e.inSpec {
		t.Errorf("known %v, claims %v, in its specification %v", known, e.lse, e.inSpec)
	}
}

// halved is an engine on two CPUs, of which one may be somebody's own.
func halved(t *testing.T) *Engine {
	t.Helper()
	m, err := metrics.NewEngine(prometheus.NewRegistry(), "test")
	if err != nil {
		t.Fatal(err)
	}
	static := Static{
		Name: "n", Topology: topo.New([]topo.CPU{{ID: 0, Core: 0}, {ID: 1, Core: 1}}, topo.Range(0, 0)),
		Kernel: node.Kernel{Major: 6, Minor: 12, Cgroup: node.CgroupV2},
	}
	for _, k := range []plan.Knob{plan.CPUSetCPUs, plan.CPUSetMems, plan.CPUQuota} {
		static.Kernel.Knobs[k].OK = true
	}
	cfg := config.Default().Node
	cfg.Limits.NodeCPUSetMaxPercent = 50
	return New(Options{
		Config: cfg, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: m, Edge: noMark{}, Journal: nowhere{}, Kernel: &seen{},
		Views: NewViews(cfg, static, nil, "test"), Past: NewPast(nil),
	})
}

// A creation that is decided anew because its device has left the registry knows the claims that came before it all the same.
func TestClaimsOfALostDevice(t *testing.T) {
	t.Parallel()
	g := halved(t)
	g.o.Live = &Live{CDI: func() map[string]struct{} { return map[string]struct{}{} }}
	s := g.views.static
	s.Kernel.CDI = map[string]struct{}{"nvidia.com/gpu=GPU-0": {}}
	g.views.SetStatic(s)
	g.views.SetRuntime(node.Runtime{Fields: node.Fields{CDI: true}})
	ask, _ := protocol.ParsePod(nil, map[string]string{protocol.AnnotationDeviceAllocated: `{"gpu":[{"minor":0,"id":"GPU-0"}]}`})
	var creations []*Creation
	for _, pod := range []string{"a", "b"} {
		sb, ctr := pinned(pod, "LSE", "1")
		p := sb.Read()
		p.Ask.Devices = ask.Devices
		cr := g.Decide(sb, ctr)
		if cr.e.plan.Get(plan.CDIDevice) == nil {
			t.Fatalf("decided: %v", cr.e.plan)
		}
		creations = append(creations, cr)
	}
	for i, cr := range creations {
		var spec plan.Plan
		if err := cr.Create(t.Context(), func(_ *node.View, pl plan.Plan) plan.Plan { spec = pl; return nil }); err != nil {
			t.Fatal(err)
		}
		s := spec.Get(plan.CPUQuota)
		if (s != nil && s.Value.Int() == -1) != (i == 0) || spec.Get(plan.CDIDevice) != nil || spec.Get(plan.Env) == nil {
			t.Errorf("creation %d is specified\n%s", i, spec)
		}
	}
}
