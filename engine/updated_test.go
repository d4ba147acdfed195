// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// answered is a neighbour of an exclusive container that has been resized, and whose answer keeps it off that one's CPU; all are the
// CPUs of the machine. The runtime has not written the answer when the CPU becomes free.
func answered(t *testing.T, drift time.Duration, change ...func(*engine.Options)) (r *rig, id string, runtime func(), all func() bool) {
	t.Helper()
	r = newRig(t, 0, append(change, func(o *engine.Options) { o.Views.SetStatic(pinnable(t)); o.Drift = drift })...)
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
	r.Updated(t.Context(), id)
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

// An answer that the runtime never says to have written is not waited for for ever: a hand's CPUs are the hand's business then.
func TestAnswerIsForgotten(t *testing.T) {
	t.Parallel()
	var late atomic.Int64
	r, _, runtime, all := answered(t, time.Hour, func(o *engine.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
	})
	late.Store(int64(time.Hour))
	runtime()
	r.Repair()
	enginetest.Eventually(t, "the last look for the answer", all)
	runtime()
	r.Repair()
	enginetest.Eventually(t, "an end of all repairs", r.Idle)
	if all() {
		t.Error("what nobody wants is taken back an hour after an answer")
	}
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

// confinedAtCreation is a container that was created, and has started, on the CPUs that an exclusive one left it, which has gone since.
func confinedAtCreation(t *testing.T, change ...func(*engine.Options)) (r *rig, sb engine.Sandbox, c *workload.Container, cpus func() string) {
	t.Helper()
	change = append(change, func(o *engine.Options) { o.Edge = paper(plan.KnobSet(plan.CPUSetCPUs)); o.Views.SetStatic(pinnable(t)) })
	r = newRig(t, 0, change...)
	owner, other := exclusive(t, r, "owner", "0")
	none := func(_ *node.View, _ plan.Plan) plan.Plan { return nil }
	must(t, r.Create(t.Context(), owner, other, none))
	sb, c = r.pod(t, nil), container()
	must(t, r.Create(t.Context(), sb, c, func(_ *node.View, spec plan.Plan) plan.Plan {
		s := spec.Get(plan.CPUSetCPUs)
		if s == nil {
			t.Fatalf("the specification is %v", spec)
		}
		r.tree.Mkdir(t, c.Cgroup)
		r.tree.Set(t, c.Cgroup, "cpuset.cpus", s.Value.String())
		return nil
	}))
	must(t, r.Start(t.Context(), sb, engine.Arrival{ID: c.ID}, 0, ""))
	r.RemovePod(owner.ID)
	cpus = func() string { return r.tree.Get(t, c.Cgroup, "cpuset.cpus") }
	enginetest.Eventually(t, "its widening", func() bool { return r.Idle() && cpus() == r.Views().Load().Topology.All().String() })
	r.RunPodLater(engine.Sandbox{ID: "last", Read: func() *workload.Pod { return &workload.Pod{ID: "last", UID: "last"} }})
	enginetest.Eventually(t, "an end of what its start has left for later", func() bool { _, ok := r.KnownPod("last"); return ok && r.Idle() })
	return r, sb, c, cpus
}

// The runtime writes all of its record with each update (facts, containerd): what a repair has taken back in the kernel alone is
// answered with again, as often as there is an update, and a next life knows whose value that is.
func TestRecordIsWrittenAgain(t *testing.T) {
	t.Parallel()
	r, sb, c, _ := confinedAtCreation(t)
	all := r.Views().Load().Topology.All().String()
	for range 2 {
		_, full, _ := r.Update(t.Context(), sb, engine.Arrival{ID: c.ID}, workload.Resources{Shares: unit.Some(512)}, nil)
		if s := full.Get(plan.CPUSetCPUs); s == nil || s.Value.String() != all {
			t.Errorf("the answer is %v, want CPUs %s", full, all)
		}
		r.Updated(t.Context(), c.ID)
		enginetest.Eventually(t, "an end of the update", r.Idle)
	}
	book := r.book.Of(c.ID, plan.CPUSetCPUs.String())
	if !slices.ContainsFunc(book, func(b journal.Record) bool { return b.Via == journal.ViaRuntime && b.Want == all }) {
		t.Errorf("the ledger has %v", book)
	}
}

// Also where the answer came too late for the runtime, which has written its record as it was.
func TestRecordIsWrittenWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	r, sb, c, cpus := confinedAtCreation(t)
	all := cpus()
	r.Update(t.Context(), sb, engine.Arrival{ID: c.ID}, workload.Resources{Shares: unit.Some(512)}, nil)
	r.UpdatedLate(c.ID)
	r.tree.Set(t, c.Cgroup, "cpuset.cpus", "1-3")
	r.Updated(t.Context(), c.ID)
	enginetest.Eventually(t, "its second widening", func() bool { return cpus() == all })
}

// An answer that was recorded, and that the runtime has not got, leaves the one before it in the runtime's record: that is still ours.
func TestLedgerKnowsTheAnswerBefore(t *testing.T) {
	t.Parallel()
	answer := func(cpus string) journal.Record {
		return journal.Record{
			Target: plan.Target{Level: plan.LevelContainer, Container: "c"}, Knob: plan.CPUSetCPUs.String(), Want: cpus, Owner: "cpuset", Via: journal.ViaRuntime,
		}
	}
	r := newRig(t, 0, func(o *engine.Options) {
		o.Past = engine.NewPast([]journal.Record{answer("0-3"), answer("1-3"), answer("1-3"), answer("2-3")})
	})
	for _, cpus := range []string{"1-3", "2-3"} {
		base := workload.Resources{CPUs: cpus}
		if mark.Rebase(&base, r.Marked("c")...); base.CPUs != "" {
			t.Errorf("%s in the runtime's record is taken for the kubelet's", cpus)
		}
	}
}
