// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/workload"
)

// tardy is a runtime whose answer something overtakes.
type tardy struct {
	pod       *workload.Pod
	overtakes func(id string)
}

// Container implements Lister.
func (l *tardy) Container(_ context.Context, id string, _ ...*protocol.Applied) (*workload.Pod, *workload.Container, error) {
	l.overtakes(id)
	return l.pod, &workload.Container{ID: id, Name: "app", Cgroup: l.pod.Cgroup + "/" + id, State: workload.StateRunning}, nil
}

// A container that is removed while the runtime is asked about it stays away, and its pod with it; one that is started stays started.
func TestRelistIsOvertaken(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("a", 64)
	for name, c := range map[string]struct {
		overtakes  func(g *Engine, pod *workload.Pod, dir string)
		known, pod bool
		pid        int
	}{
		"by nothing": {func(*Engine, *workload.Pod, string) {}, true, true, 0},
		"by its removal": {func(g *Engine, pod *workload.Pod, dir string) {
			_ = os.Remove(dir)
			g.Remove(id)
		}, false, true, 0},
		"by its pod's removal": {func(g *Engine, pod *workload.Pod, dir string) {
			_ = os.Remove(dir)
			g.RemovePod(pod.ID)
		}, false, false, 0},
		"by its start": {func(g *Engine, pod *workload.Pod, _ string) {
			read := func(...*protocol.Applied) *workload.Container {
				return &workload.Container{ID: id, Name: "app", Cgroup: pod.Cgroup + "/" + id, State: workload.StateCreating}
			}
			start(g, Sandbox{ID: pod.ID, Read: func() *workload.Pod { return pod }}, Arrival{ID: id, Read: read})
		}, true, true, 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _ := protector(t, nil, nil)
			pod := lsr("one")
			g.Synchronize([]*workload.Pod{pod}, nil)
			g.o.CgroupRoot = t.TempDir()
			dir := filepath.Join(g.o.CgroupRoot, pod.Cgroup, id)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			g.o.List = &tardy{pod, func(string) { c.overtakes(g, pod, dir) }}
			g.relist(t.Context())
			g.drain()
			e, known := g.reg.container(id)
			if _, pod := g.reg.pod("one"); known != c.known || pod != c.pod || known && e.c.PID != c.pid {
				t.Errorf("container known %v and pod %v, want %v and %v; %+v", known, pod, c.known, c.pod, e.c)
			}
		})
	}
}

// A container that is started, or a creation that is dropped, while a list is taken in: what the event has said stands.
func TestAddIsOvertaken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		creating  bool
		overtakes func(*Engine, Sandbox, Arrival)
		known     bool
	}{
		"by the start of one that is not known": {false, start, true},
		"by the start of one that is known":     {true, start, true},
		"by the removal of one that is known":   {true, func(g *Engine, sb Sandbox, a Arrival) { g.Remove(a.ID) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _ := protector(t, nil, nil)
			pod := lsr("one")
			sb := Sandbox{ID: pod.ID, Read: func() *workload.Pod { return pod }}
			one := listed(pod)
			if c.creating {
				created := one.Read()
				created.State = workload.StateCreating
				if err := g.Create(t.Context(), sb, created, func(_ *node.View, spec plan.Plan) plan.Plan { return spec }); err != nil {
					t.Fatal(err)
				}
			}
			late, read := one, one.Read
			late.Read = func(known ...*protocol.Applied) *workload.Container {
				c.overtakes(g, sb, one.Arrival)
				return read(known...)
			}
			g.Add([]*workload.Pod{pod}, []Listed{late})
			e, known := g.reg.container(one.ID)
			if known != c.known || known && (e.c.State != workload.StateCreated || e.c.PID != 7) {
				t.Errorf("known %v, want %v: %+v", known, c.known, e.c)
			}
		})
	}
}

// start starts a container as process 7.
func start(g *Engine, sb Sandbox, a Arrival) {
	if err := g.Start(context.Background(), sb, a, 7, ""); err != nil {
		panic(err)
	}
}

// What reclaim gives a container while it gets its name is not undone by that.
func TestRenameKeepsClaims(t *testing.T) {
	t.Parallel()
	r := newRegistry()
	r.newContainer(entry{c: &workload.Container{ID: "pending", State: workload.StateCreating}, sandbox: "s", lsr: topo.Range(0, 1)})
	e, _ := r.container("pending")
	r.changeContainer("pending", func(e *entry) { e.lse, e.lsr = topo.Range(2, 3), topo.CPUSet{} })
	e.c = &workload.Container{ID: "c1", State: workload.StateCreating}
	r.rename("pending", e)
	if got, known := r.container("c1"); !known || got.lse.String() != "2-3" || !got.lsr.Empty() {
		t.Errorf("known %v, claims %s and %s, want 2-3 and nothing", known, got.lse, got.lsr)
	}
}
