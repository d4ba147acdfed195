// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// stuck is a kernel at which a plan with one cgroup waits until it is opened, as behind a write that reclaims memory.
type stuck struct {
	wishes
	dir  string
	open chan struct{}

	mu   sync.Mutex
	cpus map[string]string
}

// Apply implements Kernel.
func (k *stuck) Apply(_ context.Context, p plan.Plan, _ uint64) []apply.Result {
	if slices.ContainsFunc(p, func(s plan.Setting) bool { return s.Target.Cgroup == k.dir }) {
		<-k.open
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]apply.Result, len(p))
	for i := range p {
		out[i] = apply.Result{Setting: p[i], Outcome: apply.Written}
		if p[i].Knob == plan.CPUSetCPUs {
			k.cpus[p[i].Target.Cgroup] = p[i].Value.String()
		}
	}
	return out
}

// A neighbour that is stuck is not waited for by the others: they leave the CPUs that somebody claims.
func TestDisplaceBesideAStuckNeighbour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := halved(t)
		var pods []*workload.Pod
		var list []Listed
		for _, name := range []string{"one", "two", "three"} {
			pod := lsr(name)
			pod.Ask.QoS = protocol.QoSLS
			pods, list = append(pods, pod), append(list, listed(pod))
		}
		g.Synchronize(pods, list)
		k := &stuck{dir: "/kubepods/podtwo/c-two", open: make(chan struct{}), cpus: map[string]string{}}
		g.o.Kernel = k
		sb, ctr := pinned("four", "LSE", "1")
		if err := g.Create(t.Context(), sb, ctr, func(*node.View, plan.Plan) plan.Plan { return nil }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want := map[string]string{"/kubepods/podone/c-one": "0", "/kubepods/podthree/c-three": "0"}
		k.mu.Lock()
		if diff := cmp.Diff(want, k.cpus); diff != "" {
			t.Errorf("while one is stuck (-want +got):\n%s", diff)
		}
		k.mu.Unlock()
		if at := g.writers.at; len(at) != 1 || at["c-two"].n != 1 {
			t.Errorf("an update would wait for who is at %v, want the one that is stuck", at)
		}
		close(k.open)
		synctest.Wait()
		want[k.dir] = "0"
		if diff := cmp.Diff(want, k.cpus); diff != "" {
			t.Errorf("in the end (-want +got):\n%s", diff)
		}
	})
}

// decidedToMove is an engine with a neighbour whose CPUs the container id has claimed, which a repair has decided and not written.
func decidedToMove(t *testing.T) (g *Engine, id string) {
	t.Helper()
	g = halved(t)
	pod := lsr("one")
	pod.Ask.QoS = protocol.QoSLS
	g.Synchronize([]*workload.Pod{pod}, []Listed{listed(pod)})
	sb, ctr := pinned("four", "LSE", "1")
	g.entryOf(g.podOf(sb), sb, Arrival{ID: ctr.ID, Read: func(...*protocol.Applied) *workload.Container { return ctr }}) // claims
	if !g.moves.wait(t.Context(), g, ctr.ID, time.Now().Add(time.Minute)) {
		t.Fatal("its own displacement does not end")
	}
	g.replan(g.views.cur.Load())
	return g, ctr.ID
}

// A repair that has decided a neighbour's CPUs and not written them has not moved it.
func TestDisplaceAheadOfARepair(t *testing.T) {
	t.Parallel()
	g, id := decidedToMove(t)
	k := &honest{}
	g.o.Kernel = k
	g.displace(t.Context(), id)
	s := k.asked.Get(plan.CPUSetCPUs)
	if s == nil || s.Target.Cgroup != "/kubepods/podone/c-one" || s.Value != plan.Text("0") {
		t.Errorf("asked for: %v", k.asked)
	}
	// Who stands where he is to be is left alone, also where only the kernel knows.
	k.asked = slices.Clone(k.asked)
	n := len(k.asked)
	if g.displace(t.Context(), id); len(k.asked) > n {
		t.Errorf("asked for once more: %v", k.asked[n:])
	}
}

// honest is a kernel that has what it was asked for, and does not remember by whom.
type honest struct{ seen }

// Verify implements Kernel.
func (k *honest) Verify(p plan.Plan) (bad []apply.Mismatch) {
	for _, s := range p {
		if have := k.asked.Find(s.Target, s.Knob, s.Key); have == nil || have.Value != s.Value {
			bad = append(bad, apply.Mismatch{Setting: s})
		}
	}
	return bad
}

// changing is a kernel beside which somebody acts while it is read.
type changing struct {
	honest
	act func()
}

// Verify implements Kernel.
func (k *changing) Verify(p plan.Plan) []apply.Mismatch {
	k.act()
	return k.honest.Verify(p)
}

// A neighbour that is updated between the decision where it has to move and the write has been decided by its handler since: the CPUs that were
// decided for it before are not written over those.
func TestDisplaceSparesTheUpdated(t *testing.T) {
	t.Parallel()
	for name, updated := range map[string]bool{"as it was": false, "updated": true} {
		g, id := decidedToMove(t)
		k := &changing{act: func() {
			if updated {
				g.reg.changeContainer("c-one", func(e *entry) {
					c := *e.c
					e.c = &c
				})
			}
		}}
		g.o.Kernel = k
		if g.displace(t.Context(), id); (len(k.asked) == 0) != updated {
			t.Errorf("%s: asked for %v", name, k.asked)
		}
		if e, _ := g.reg.container("c-one"); e.gen != undecided {
			t.Errorf("%s: it is not decided anew", name)
		}
	}
}
