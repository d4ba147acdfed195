// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// deciding is a kernel beside which somebody decides during the first write.
type deciding struct {
	*seen
	decide func()
}

// Apply implements Kernel.
func (k *deciding) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	if d := k.decide; d != nil {
		k.decide = nil
		d()
	}
	return k.seen.Apply(ctx, p, gen)
}

// What is decided while the job behind a start writes is written after it: the value of then must not stand in the end.
func TestStartCatchesUp(t *testing.T) {
	t.Parallel()
	g := halved(t)
	pod := lsr("one")
	g.Synchronize([]*workload.Pod{pod}, []Listed{listed(pod)})
	e, _ := g.reg.container("c-one")
	cpus := func(value string) func(*entry) {
		return func(now *entry) {
			now.plan = plan.Plan{{Target: e.c.Target(pod), Knob: plan.CPUSetCPUs, Value: plan.Text(value)}}
			now.gen++
		}
	}
	g.reg.changeContainer(e.c.ID, cpus("0"))
	k := &seen{}
	g.o.Kernel = &deciding{k, func() { g.reg.changeContainer(e.c.ID, cpus("1")) }}
	g.catchUp(t.Context(), e.c, e)
	if n := len(k.asked); n < 2 || k.asked[n-1].Value != plan.Text("1") {
		t.Errorf("asked for: %v", k.asked)
	}
}

// A container that is removed while its start waits for the pod's cgroup is not taken in again, nor are its CPUs.
func TestRemovedDuringItsStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := halved(t)
		defer g.crew.dismiss()
		sb, ctr := pinned("one", "LSE", "1")
		ctr.State = workload.StateCreated
		arrival := Arrival{ID: ctr.ID, Read: func(...*protocol.Applied) *workload.Container { c := *ctr; return &c }}
		g.unsettled.ask(sb.ID)
		if mine, _ := g.unsettled.claim(sb.ID); !mine {
			t.Fatal("somebody is at the pod")
		}
		started := make(chan error, 1)
		go func() { started <- g.Start(t.Context(), sb, arrival, 0, "") }()
		synctest.Wait()
		if len(g.views.Load().Claims.ByPod) != 1 {
			t.Fatal("its CPUs are not claimed")
		}
		g.Remove(ctr.ID)
		g.unsettled.release(sb.ID)
		if err := <-started; err != nil {
			t.Error(err)
		}
		if _, known := g.reg.container(ctr.ID); known || len(g.views.Load().Claims.ByPod) > 0 {
			t.Errorf("known: %v; claims: %v", known, g.views.Load().Claims)
		}
	})
}

// vanished is a kernel without cgroups, in which somebody acts beside the first write.
type vanished struct {
	wishes
	act func()
}

// Apply implements Kernel.
func (k *vanished) Apply(_ context.Context, p plan.Plan, _ uint64) []apply.Result {
	if act := k.act; act != nil {
		k.act = nil
		act()
	}
	out := make([]apply.Result, len(p))
	for i := range p {
		out[i] = apply.Result{Setting: p[i], Outcome: apply.Gone, Err: apply.ErrGone}
	}
	return out
}

// A container whose cgroup was gone when a repair looked, and that somebody has started again since, has not ended.
func TestStartedAgainBesideARepair(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"ended": false, "started again": true} {
		g := halved(t)
		g.o.ExitsUntold = true
		pod := lsr("one")
		pod.Ask.QoS = protocol.QoSLS
		g.Synchronize([]*workload.Pod{pod}, []Listed{listed(pod)})
		e, _ := g.reg.container("c-one")
		g.reg.changeContainer(e.c.ID, func(now *entry) {
			now.plan = plan.Plan{{Target: e.c.Target(pod), Knob: plan.CPUSetCPUs, Value: plan.Text("0")}}
			now.gen = g.views.Load().Generation
		})
		g.o.Kernel = &vanished{act: func() {
			if again {
				g.reg.changeContainer(e.c.ID, func(now *entry) {
					c := *now.c
					c.PID, now.c = 7, &c
				})
			}
		}}
		g.repairAll(t.Context(), true, true)
		if now, _ := g.reg.container(e.c.ID); (now.c.State == workload.StateStopped) == again {
			t.Errorf("%s: its state is %v", name, now.c.State)
		}
	}
}

// A container that is updated while a repair writes its older values gets what is wanted now, also where that stood before the repair's write.
func TestUpdatedBesideARepair(t *testing.T) {
	t.Parallel()
	g := halved(t)
	pod := lsr("one")
	g.Synchronize([]*workload.Pod{pod}, []Listed{listed(pod)})
	e, _ := g.reg.container("c-one")
	cpus := func(value string) plan.Plan {
		return plan.Plan{{Target: e.c.Target(pod), Knob: plan.CPUSetCPUs, Value: plan.Text(value)}}
	}
	g.reg.changeContainer(e.c.ID, func(now *entry) { now.plan, now.gen = cpus("0"), g.views.Load().Generation })
	k := &seen{}
	g.o.Kernel = &deciding{k, func() {
		g.reg.changeContainer(e.c.ID, func(now *entry) {
			c := *now.c
			now.c, now.plan = &c, cpus("1")
		})
	}}
	g.repairAll(t.Context(), true, true)
	if n := len(k.asked); n < 2 || k.asked[n-1].Value != plan.Text("1") {
		t.Errorf("asked for: %v", k.asked)
	}
}
