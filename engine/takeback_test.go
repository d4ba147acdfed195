// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
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

func (g *guest) has(when, want string) {
	g.Helper()
	e, _ := g.reg.container(g.ctr.ID)
	g.k.mu.Lock()
	defer g.k.mu.Unlock()
	if got := g.k.cpus[e.c.Cgroup]; got != want {
		g.Errorf("%s the guest is on CPUs %q, want %q", when, got, want)
	}
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
