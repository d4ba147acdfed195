// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// answered is a neighbour of an exclusive container that has been resized, and whose answer keeps it off that one's CPU; all are the
// CPUs of the machine. The runtime has not written the answer when the CPU becomes free.
func answered(t *testing.T, drift time.Duration) (r *rig, id string, runtime func(), all func() bool) {
	t.Helper()
	r = newRig(t, 0, func(o *engine.Options) { o.Views.SetStatic(pinnable(t)); o.Drift = drift })
	pod, ctr := neighbour(t, r, "resized")
	cpus := func() string { return r.tree.Get(t, pod.Cgroup+"/c", "cpuset.cpus") }
	sb, c := exclusive(t, r, "owner", "0")
	must(t, r.Create(t.Context(), sb, c, func(_ *node.View, spec plan.Plan) plan.Plan { return spec }))
	r.Add([]*workload.Pod{pod}, []engine.Listed{ctr})
	enginetest.Eventually(t, "the neighbour's leaving", func() bool { return r.Idle() && cpus() != "" })
	without := cpus()
	_, full, _ := r.Update(t.Context(), sandboxOf(pod), ctr.Arrival, workload.Resources{Quota: unit.Some(150000)}, nil)
	if s := full.Get(plan.CPUSetCPUs); s == nil || s.Value.String() != without {
		t.Fatalf("the answer is %v, want CPUs %s", full, without)
	}
	r.RemovePod(sb.ID)
	all = func() bool { return r.Idle() && cpus() == r.Views().Load().Topology.All().String() }
	enginetest.Eventually(t, "the neighbour's return", all)
	return r, ctr.ID, func() { r.tree.Set(t, pod.Cgroup+"/c", "cpuset.cpus", without) }, all
}

// What an update was answered with is decided away before the runtime gets to write it: it is taken back when the runtime says that it
// has written it.
func TestAnswerIsOvertaken(t *testing.T) {
	t.Parallel()
	r, id, runtime, all := answered(t, time.Hour)
	runtime()
	r.Updated(id)
	enginetest.Eventually(t, "the neighbour's second return", all)
	runtime() // a hand, this time: what nobody wants is nobody's business
	r.Repair()
	enginetest.Eventually(t, "an end of all repairs", r.Idle)
	if all() {
		t.Error("a hand's CPUs are taken back, though the update is through")
	}
}

// So it is where the runtime dies before it can say anything: by the next look against drift.
func TestAnswerIsOvertakenAndNobodyTells(t *testing.T) {
	t.Parallel()
	_, _, runtime, all := answered(t, 10*time.Millisecond)
	runtime()
	enginetest.Eventually(t, "the neighbour's second return", all)
}

// A life that ends right after its answer has told the next one what of the runtime's record is ours.
func TestAnswerIsInTheLedger(t *testing.T) {
	t.Parallel()
	r, k := gated(t, func(o *engine.Options) { o.Edge = paper(plan.KnobSet(plan.CPUBurst)) })
	pod, ctr := bursty(t, r, "resized", workload.StateRunning)
	k.waitFor(atPod)
	r.Add([]*workload.Pod{pod}, []engine.Listed{ctr})
	enginetest.Eventually(t, "the settlement at the pod", k.closed.Load) // the background gets no further
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		r.Update(t.Context(), sandboxOf(pod), ctr.Arrival, workload.Resources{Quota: unit.Some(300000)}, nil)
	}()
	defer func() { k.let(); <-answered }()
	enginetest.Eventually(t, "a record of the answer", func() bool { return len(r.book.Of(ctr.ID, plan.CPUBurst.String())) > 0 })
}
