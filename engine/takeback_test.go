// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// board is a kernel that keeps cpusets. It has no cgroups, refuses all writes, or holds other values than any plan, while it is told to.
type board struct {
	wishes
	mu                   sync.Mutex
	gone, refuse, strays bool
	cpus                 map[string]string
}

// Apply implements Kernel.
func (k *board) Apply(_ context.Context, p plan.Plan, _ uint64) []apply.Result {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]apply.Result, len(p))
	for i := range p {
		out[i].Setting = p[i]
		switch {
		case k.gone:
			out[i].Outcome, out[i].Err = apply.Gone, apply.ErrGone
		case k.refuse:
			out[i].Outcome, out[i].Err = apply.Failed, errors.New("no space left")
		default:
			if out[i].Outcome = apply.Written; p[i].Knob == plan.CPUSetCPUs {
				k.cpus[p[i].Target.Cgroup] = p[i].Value.String()
			}
		}
	}
	return out
}

// Verify implements Kernel.
func (k *board) Verify(p plan.Plan) (out []apply.Mismatch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range p {
		if k.strays {
			out = append(out, apply.Mismatch{Setting: p[i]})
		}
	}
	return out
}

// guest is a container on a machine of two CPUs, whose engine does not run, beside a pod that comes and goes.
type guest struct {
	*testing.T
	*Engine
	k   *board
	pod *workload.Pod
	ctr Listed
}

func guestOf(t *testing.T) *guest {
	t.Helper()
	g := &guest{T: t, Engine: halved(t), k: &board{cpus: map[string]string{}}, pod: lsr("one")}
	g.o.Kernel = g.k
	g.pod.Ask.QoS = protocol.QoSLS
	g.ctr = listed(g.pod)
	g.Synchronize([]*workload.Pod{g.pod}, []Listed{g.ctr})
	g.pass()
	return g
}

func (g *guest) sandbox() Sandbox {
	return Sandbox{ID: g.pod.ID, Read: func() *workload.Pod { return g.pod }}
}

func (g *guest) pass() { g.repairAll(context.Background(), false, true) }

// claimed has a pod with a CPU of its own come, for which the guest leaves.
func (g *guest) claimed() {
	g.Helper()
	sb, ctr := pinned("two", "LSR", "1")
	if err := g.Create(context.Background(), sb, ctr, func(*node.View, plan.Plan) plan.Plan { return nil }); err != nil {
		g.Fatal(err)
	}
	g.BeforeStart(context.Background(), ctr.ID)
	g.has("for the other one", "0")
}

// confined is the guest by a plan that everybody knows, after which the other one goes.
func (g *guest) confined() {
	g.Helper()
	g.claimed()
	g.pass()
	g.RemovePod("two")
}

func (g *guest) has(when, want string) {
	g.Helper()
	e, _ := g.reg.container(g.ctr.ID)
	g.k.mu.Lock()
	defer g.k.mu.Unlock()
	if got := g.k.cpus[e.c.Cgroup]; got != want {
		g.Errorf("%s the guest is on CPUs %q, want %q", when, got, want)
	}
}

func (g *guest) update(quota int64) plan.Plan {
	_, full, _ := g.Update(context.Background(), g.sandbox(), g.ctr.Arrival, workload.Resources{Quota: unit.Some(quota)}, nil)
	return full
}

// Who is moved for somebody that goes before any repair has decided him comes back.
func TestUndoOfADisplacement(t *testing.T) {
	t.Parallel()
	g := guestOf(t)
	g.claimed()
	g.RemovePod("two")
	g.pass()
	g.has("alone", "0-1")
}

// A repair may have begun before the displacement, and decide after it by the older View.
func TestUndoOfADisplacementWithinARepair(t *testing.T) {
	t.Parallel()
	g := guestOf(t)
	var comes atomic.Bool
	g.o.Join = func(ours, _ plan.Plan) plan.Plan {
		if comes.CompareAndSwap(true, false) {
			g.claimed()
			g.RemovePod("two")
		}
		return ours
	}
	g.Update(t.Context(), g.sandbox(), g.ctr.Arrival, workload.Resources{}, plan.Plan{{Knob: plan.CPUShares, Hook: "agent"}})
	comes.Store(true)
	g.views.SetFile(nil, "another one")
	g.pass()
	g.pass()
	g.has("alone", "0-1")
}

// What an answer was to take back is taken back where the runtime has not got it, has refused it, or says nothing.
func TestUndoIsNotLostToAnAnswer(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(g *guest, was *workload.Container){
		"late":    func(g *guest, _ *workload.Container) { g.UpdatedLate(g.ctr.ID) },
		"refused": func(g *guest, was *workload.Container) { g.UpdateRefused(g.sandbox(), was) },
		"silence": func(*guest, *workload.Container) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := guestOf(t)
			g.confined()
			_, was, _ := g.Known(g.ctr.ID)
			if s := g.update(150000).Get(plan.CPUSetCPUs); s == nil || s.Value.String() != "0-1" {
				t.Fatalf("the answer has %v", s)
			}
			then(g, was)
			g.pass()
			g.has("after the update", "0-1")
		})
	}
}

// What could not be taken back behind an update, or at a start, is taken back later.
func TestUndoBehindAnUpdateIsTriedAgain(t *testing.T) {
	t.Parallel()
	g := guestOf(t)
	g.claimed()
	g.pass()
	g.update(150000)
	g.RemovePod("two")
	g.pass()
	e, _ := g.reg.container(g.ctr.ID)
	g.k.cpus[e.c.Cgroup] = "0" // the runtime
	g.k.refuse = true
	g.Updated(t.Context(), g.ctr.ID)
	g.drain()
	g.k.refuse = false
	g.pass()
	g.has("after the update", "0-1")
}

func TestUndoAtAStartIsTriedAgain(t *testing.T) {
	t.Parallel()
	g := guestOf(t)
	dir := g.created()
	g.k.cpus[dir], g.k.refuse = "0", true
	g.start()
	g.k.refuse = false
	g.pass()
	g.has("after its start", "0-1")
}

// A container that an earlier life has created is repaired before the runtime has made its cgroup: what the runtime then writes of its
// specification is taken back at its start all the same, and a hand's doing after that is not.
func TestStartAfterARepairWithoutCgroup(t *testing.T) {
	t.Parallel()
	g := guestOf(t)
	dir := g.created()
	g.Synchronize([]*workload.Pod{g.pod}, []Listed{g.ctr})
	g.k.gone = true
	g.pass()
	g.pass()
	g.k.cpus[dir], g.k.gone = "0", false
	g.start()
	g.has("after its start", "0-1")
	g.k.cpus[dir] = "1"
	g.pass()
	g.has("by a hand", "1")
}

// created makes another one the guest: an earlier life has created it on CPU 0, and it has not started. It returns its cgroup.
func (g *guest) created() string {
	g.pod = lsr("late")
	g.pod.Ask.QoS = protocol.QoSLS
	g.ctr = listed(g.pod)
	c := g.ctr.Read()
	c.State, c.Applied = workload.StateCreated, &protocol.Applied{Set: map[string]string{"cpuset.cpus": "0 cpuset"}}
	g.ctr.Read = func(...*protocol.Applied) *workload.Container { return c }
	return c.Cgroup
}

func (g *guest) start() {
	g.Helper()
	if err := g.Start(context.Background(), g.sandbox(), g.ctr.Arrival, 0, ""); err != nil {
		g.Fatal(err)
	}
	g.drain()
}

// A repair that decides and writes a container while an update of it is decided by an older View is not lost to that.
func TestRepairWithinAnUpdate(t *testing.T) {
	t.Parallel()
	g := guestOf(t)
	var once sync.Once
	g.o.Join = func(ours, _ plan.Plan) plan.Plan {
		once.Do(func() { g.claimed(); g.pass() })
		return ours
	}
	g.Update(t.Context(), g.sandbox(), g.ctr.Arrival, workload.Resources{}, plan.Plan{{Knob: plan.CPUShares, Hook: "agent"}})
	g.RemovePod("two")
	g.pass()
	g.has("alone", "0-1")
}

// Nor is it to a list of the runtime that is being taken in.
func TestRepairWithinASynchronization(t *testing.T) {
	t.Parallel()
	g := guestOf(t)
	other := lsr("other")
	other.Ask.QoS = protocol.QoSLS
	next := listed(other)
	read := next.Read
	next.Read = func(known ...*protocol.Applied) *workload.Container {
		g.claimed()
		g.pass()
		return read(known...)
	}
	g.Synchronize([]*workload.Pod{g.pod, other}, []Listed{g.ctr, next})
	g.pass()
	g.has("alone", "0-1")
}

// answers is a runtime with one container.
type answers struct {
	pod *workload.Pod
	c   workload.Container
	err error
}

// Container implements Lister.
func (a *answers) Container(context.Context, string, ...*protocol.Applied) (*workload.Pod, *workload.Container, error) {
	c := a.c
	return a.pod, &c, a.err
}

// Where nobody tells of updates, what is not wanted any more is taken back also by the pass that finds one, and after one in which the
// runtime could not be asked. What is pinned later is nobody's business then.
func TestUndoIsNotLostToAnUntoldUpdate(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]bool{"found": false, "not found yet": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := guestOf(t)
			_, c, _ := g.Known(g.ctr.ID)
			rt := &answers{pod: g.pod, c: *c}
			g.o.UpdatesUntold, g.o.List = true, rt
			g.confined()
			g.k.strays = true
			if away {
				rt.err = errors.New("away")
				g.pass()
				g.has("while the runtime is away", "0")
				rt.err = nil
			} else {
				rt.c.Base.Quota = unit.Some(150000)
			}
			g.repairAll(t.Context(), true, true)
			g.has("alone", "0-1")
			g.k.strays, g.k.cpus[c.Cgroup] = false, "1"
			g.repairAll(t.Context(), true, true)
			g.has("pinned by the CPU manager", "1")
		})
	}
}
