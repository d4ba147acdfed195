// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// gate is a kernel that holds one write up, the first of those that are waited for, and keeps what is written in order.
type gate struct {
	engine.Kernel
	holds  atomic.Pointer[func(plan.Plan) bool]
	closed atomic.Bool
	open   chan struct{}

	mu    sync.Mutex
	wrote []string // "TARGET KNOB VALUE"
}

// gated is a rig with a gate, which is open when the engine ends.
func gated(t *testing.T, change ...func(*engine.Options)) (*rig, *gate) {
	t.Helper()
	k := &gate{open: make(chan struct{})}
	r := newRig(t, 0, append(change, func(o *engine.Options) { k.Kernel, o.Kernel = o.Kernel, k })...)
	t.Cleanup(k.let)
	return r, k
}

// waitFor has the next write for which f is true held up.
func (k *gate) waitFor(f func(plan.Plan) bool) { k.holds.Store(&f) }

// let lets the write go on.
func (k *gate) let() {
	if k.closed.CompareAndSwap(true, false) {
		close(k.open)
	}
}

// Apply implements engine.Kernel.
func (k *gate) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	if f := k.holds.Load(); f != nil && (*f)(p) && k.holds.CompareAndSwap(f, nil) {
		k.closed.Store(true)
		<-k.open
	}
	results := k.Kernel.Apply(ctx, p, gen)
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range results {
		if s := &results[i].Setting; results[i].Outcome == apply.Written {
			k.wrote = append(k.wrote, fmt.Sprintf("%s %s %s", s.Target.Cgroup, s.Knob, s.Value))
		}
	}
	return results
}

func (k *gate) written() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.wrote)
}

func atPod(p plan.Plan) bool       { return p[0].Target.Level == plan.LevelPod }
func atContainer(p plan.Plan) bool { return p[0].Target.Level == plan.LevelContainer }

// bursty is a neighbour whose pod has a burst, too.
func bursty(t *testing.T, r *rig, name string, state workload.State) (*workload.Pod, engine.Listed) {
	t.Helper()
	pod, ctr := neighbour(t, r, name)
	pod.Base.Quota = unit.Some(200000)
	r.tree.Set(t, pod.Cgroup, "cpu.max", "200000 100000")
	ctr.Read().State = state
	return pod, ctr
}

func sandboxOf(pod *workload.Pod) engine.Sandbox {
	return engine.Sandbox{ID: pod.ID, Read: func() *workload.Pod { return pod }}
}

func percent(t *testing.T, n int) *strategy.Spec {
	t.Helper()
	spec, err := strategy.Parse(fmt.Appendf(nil, "cpuBurstStrategy: {policy: cpuBurstOnly, cpuBurstPercent: %d}\n", n))
	must(t, err)
	return &spec
}

// A strategy without bursts is decided, and the repair that takes them away is still at the pod, when an update comes: the burst that
// stands falls before the reply, though no plan has it any more.
func TestUpdateBesideARepair(t *testing.T) {
	t.Parallel()
	r, k := gated(t)
	pod, ctr := bursty(t, r, "ours", workload.StateRunning)
	burst := func() string { return r.tree.Get(t, pod.Cgroup+"/c", "cpu.max.burst") }
	r.Synchronize([]*workload.Pod{pod}, []engine.Listed{ctr})
	enginetest.Eventually(t, "the burst", func() bool { return burst() == "200000" && r.Idle() })
	k.waitFor(atPod)
	none, err := strategy.Parse([]byte("cpuBurstStrategy: {policy: none}\n"))
	must(t, err)
	r.Views().SetFile(&none, "test")
	enginetest.Eventually(t, "the repair at the pod", k.closed.Load)
	r.SetDeadline(20 * time.Millisecond) // so long it waits for the pod
	r.Update(t.Context(), sandboxOf(pod), ctr.Arrival, workload.Resources{Quota: unit.Some(100000)}, nil)
	if got := burst(); got != "0" {
		t.Errorf("cpu.max.burst is %s when the runtime writes the quota", got)
	}
}

// A container that another life has made starts while the repair of this one, which has decided it, is still at its pod: the repair
// leaves it to its start, and that writes what the specification does not carry.
func TestStartBesideARepair(t *testing.T) {
	t.Parallel()
	r, k := gated(t)
	pod, ctr := bursty(t, r, "ours", workload.StateCreated)
	ctr.Read().Applied = &protocol.Applied{Generation: 9, By: "koord-nri/1", Set: map[string]string{"cpu.shares": "2 cpu-identity"}}
	k.waitFor(atPod)
	r.Synchronize([]*workload.Pod{pod}, []engine.Listed{ctr})
	enginetest.Eventually(t, "the repair at the pod", k.closed.Load)
	r.SetDeadline(20 * time.Millisecond) // so long it waits for the pod
	must(t, r.Start(t.Context(), sandboxOf(pod), ctr.Arrival, 0, ""))
	if got := r.tree.Get(t, pod.Cgroup+"/c", "cpu.max.burst"); got != "200000" {
		t.Errorf("cpu.max.burst after the start is %q, want 200000", got)
	}
	k.let()
	enginetest.Eventually(t, "end of the repair", r.Idle)
	if got := r.tree.Get(t, pod.Cgroup+"/c", "cpu.max.burst"); got != "200000" {
		t.Errorf("cpu.max.burst after the repair is %q, want 200000", got)
	}
}

// A new strategy is in force before a start that was decided by the old one gets to its write: the new one stands in the end.
func TestStartIsOvertaken(t *testing.T) {
	t.Parallel()
	r, k := gated(t)
	pod, ctr := bursty(t, r, "ours", workload.StateCreated)
	k.waitFor(atContainer)
	started := make(chan error, 1)
	go func() { started <- r.Start(t.Context(), sandboxOf(pod), ctr.Arrival, 0, "") }()
	enginetest.Eventually(t, "the start's write", k.closed.Load)
	stands := func(want string) func() bool {
		return func() bool { return r.tree.Get(t, pod.Cgroup+"/c", "cpu.max.burst") == want }
	}
	r.Views().SetFile(percent(t, 50), "test")
	enginetest.Eventually(t, "the new strategy", stands("100000"))
	k.let()
	must(t, <-started)
	enginetest.Eventually(t, "the new strategy, after the start's write", stands("100000"))
}

// A start that is decided a second time still takes back what the first decision did not want any more.
func TestUndoIsNotLostToASecondDecision(t *testing.T) {
	t.Parallel()
	r, k := gated(t)
	pod, ctr := bursty(t, r, "ours", workload.StateCreated)
	ctr.Read().Applied = &protocol.Applied{Generation: 9, By: "koord-nri/1", Set: map[string]string{"cpu.quota": "100000 batch"}}
	r.tree.Set(t, pod.Cgroup+"/c", "cpu.max", "100000 100000")
	k.waitFor(atPod)
	must(t, r.RunPod(t.Context(), sandboxOf(pod)))
	enginetest.Eventually(t, "the pod's settlement", k.closed.Load)
	started := make(chan error, 1)
	go func() { started <- r.Start(t.Context(), sandboxOf(pod), ctr.Arrival, 0, "") }()
	enginetest.Eventually(t, "the first decision", func() bool { _, c, ok := r.Known(ctr.ID); return ok && c.State == workload.StateCreated })
	r.Views().SetFile(percent(t, 50), "test")
	k.let()
	must(t, <-started)
	if got := r.tree.Get(t, pod.Cgroup+"/c", "cpu.max"); got != "200000 100000" {
		t.Errorf("cpu.max is %q, want what was asked for, 200000 100000", got)
	}
}

// A repair that has decided a container comes to write it after somebody who knows a newer View has done so.
func TestRepairIsOvertaken(t *testing.T) {
	t.Parallel()
	r, k := gated(t, func(o *engine.Options) {
		s := pinnable(t)
		s.Kernel.Knobs[plan.CPUBurst].OK = true
		o.Views.SetStatic(s)
	})
	pod, ctr := bursty(t, r, "shared", workload.StateRunning)
	dir := pod.Cgroup + "/c"
	claim := func(name, cpus string) {
		sb, c := exclusive(t, r, name, cpus)
		must(t, r.Create(t.Context(), sb, c, func(_ *node.View, spec plan.Plan) plan.Plan { return spec }))
		r.BeforeStart(t.Context(), c.ID)
	}
	claim("first", "0")
	enginetest.Eventually(t, "an end of all repairs", r.Idle)
	k.waitFor(func(p plan.Plan) bool { return atPod(p) && p[0].Target.Cgroup == pod.Cgroup })
	r.Add([]*workload.Pod{pod}, []engine.Listed{ctr})
	enginetest.Eventually(t, "the repair at the pod", k.closed.Load)
	claim("second", "1")
	moved := r.tree.Get(t, dir, "cpuset.cpus")
	if !strings.HasPrefix(moved, "2") {
		t.Fatalf("the neighbour is on %q", moved)
	}
	k.let()
	enginetest.Eventually(t, "end of the repair", func() bool { return r.Idle() && r.tree.Get(t, dir, "cpu.max.burst") == "200000" })
	for _, w := range k.written() {
		if knob := dir + " cpuset.cpus "; strings.HasPrefix(w, knob) && w != knob+moved {
			t.Errorf("%s was written, want %s all the time", w, moved)
		}
	}
}

// A resize of a pod waits for a repair that is about to write what was decided before it: that must not raise the burst again.
func TestResizeBesideARepair(t *testing.T) {
	t.Parallel()
	r, k := gated(t)
	pod, ctr := bursty(t, r, "resized", workload.StateRunning)
	r.Synchronize([]*workload.Pod{pod}, []engine.Listed{ctr})
	stands := func() bool { return r.tree.Get(t, pod.Cgroup, "cpu.max.burst") == "200000" }
	enginetest.Eventually(t, "the pod's burst", stands)
	r.tree.Set(t, pod.Cgroup, "cpu.max.burst", "0") // by a hand
	k.waitFor(atPod)
	r.Repair()
	enginetest.Eventually(t, "the repair at the pod", k.closed.Load)
	resized := make(chan struct{})
	go func() {
		defer close(resized)
		r.UpdatePod(t.Context(), sandboxOf(pod), workload.Resources{Quota: unit.Some(50000)})
	}()
	enginetest.Eventually(t, "the pod's new quota", func() bool {
		p, _ := r.KnownPod(pod.ID)
		return p.Base.Quota == unit.Some(50000)
	})
	select {
	case <-resized:
		t.Error("the resize has not waited")
	case <-time.After(20 * time.Millisecond): // long enough for who does not wait, no matter if not
	}
	k.let()
	<-resized
	if stands() {
		t.Error("the burst stands above the new quota: the kubelet's write is refused")
	}
}

// The pod's burst stays away between the updates of its containers and its own, whoever looks at the pod meanwhile: UpdatePod, for which the
// kubelet waits, has nothing to write then. A pod that nobody tells of has its burst back after a while.
func TestBurstStaysAwayForTheKubelet(t *testing.T) {
	t.Parallel()
	var later atomic.Bool
	begun := time.Now()
	r, k := gated(t, func(o *engine.Options) {
		o.Now = func() time.Time { // stands still: a starved machine takes its time
			if later.Load() {
				return begun.Add(3 * time.Second)
			}
			return begun
		}
		rt := o.Views.Load().Runtime
		rt.Fields.UpdatePod = true
		o.Views.SetRuntime(rt)
	})
	pod, ctr := bursty(t, r, "shrinks", workload.StateRunning)
	other, keeps := bursty(t, r, "keeps", workload.StateRunning)
	r.Synchronize([]*workload.Pod{pod, other}, []engine.Listed{ctr, keeps})
	has := func(p *workload.Pod, burst string) func() bool {
		return func() bool { return r.tree.Get(t, p.Cgroup, "cpu.max.burst") == burst }
	}
	enginetest.Eventually(t, "the pods' bursts", func() bool { return has(pod, "200000")() && has(other, "200000")() })
	smaller := workload.Resources{Quota: unit.Some(50000)}
	r.Update(t.Context(), sandboxOf(other), keeps.Arrival, smaller, nil)
	r.Updated(t.Context(), keeps.ID)
	r.Update(t.Context(), sandboxOf(pod), ctr.Arrival, smaller, nil)
	r.Updated(t.Context(), ctr.ID)
	if !has(pod, "0")() {
		t.Fatalf("the pod has %q", r.tree.Get(t, pod.Cgroup, "cpu.max.burst"))
	}
	r.tree.Set(t, pod.Cgroup+"/c", "cpu.max.burst", "1") // by a hand
	r.Repair()
	enginetest.Eventually(t, "the repair", func() bool { return r.Idle() && r.tree.Get(t, pod.Cgroup+"/c", "cpu.max.burst") == "50000" })
	if !has(pod, "0")() {
		t.Error("a repair has raised it to the old quota's")
	}
	before := len(k.written())
	r.UpdatePod(t.Context(), sandboxOf(pod), smaller)
	for _, w := range k.written()[before:] { // what else is written is the checks', of the other pod as well
		if strings.HasPrefix(w, pod.Cgroup+" cpu.burst 0") {
			t.Errorf("the kubelet waited for %q", w)
		}
	}
	enginetest.Eventually(t, "the burst of the new quota", has(pod, "50000"))
	if !has(other, "0")() {
		t.Error("the pod of which nobody has told has its burst back too soon")
	}
	later.Store(true)
	r.Repair()
	enginetest.Eventually(t, "the burst of the pod that keeps its quota", has(other, "200000"))
}

// A container that is resized before its pod has got a burst: the one for the old quota is not written any more, which UpdatePod, for which
// the kubelet waits, would have to take away again.
func TestBurstOfANewPodWaitsForTheKubelet(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	r, k := gated(t, func(o *engine.Options) {
		o.Now = func() time.Time { return begun } // stands still: a starved machine takes its time
		rt := o.Views.Load().Runtime
		rt.Fields.UpdatePod = true
		o.Views.SetRuntime(rt)
	})
	pods, ctrs := map[string]*workload.Pod{}, map[string]engine.Listed{}
	var list []engine.Listed
	var all []*workload.Pod
	for _, name := range []string{"one", "two"} {
		pod, ctr := bursty(t, r, name, workload.StateRunning)
		pods[pod.Cgroup], ctrs[pod.Cgroup] = pod, ctr
		all, list = append(all, pod), append(list, ctr)
	}
	var held atomic.Pointer[string]
	k.waitFor(func(p plan.Plan) bool {
		if !atPod(p) {
			return false
		}
		held.Store(&p[0].Target.Cgroup)
		return true
	})
	r.Synchronize(all, list)
	enginetest.Eventually(t, "who settles the first pod", k.closed.Load)
	delete(pods, *held.Load())
	for dir, pod := range pods { // the one that has to wait
		smaller := workload.Resources{Quota: unit.Some(50000)}
		r.Update(t.Context(), sandboxOf(pod), ctrs[dir].Arrival, smaller, nil)
		k.let()
		enginetest.Eventually(t, "both pods", r.Idle)
		if slices.Contains(k.written(), dir+" cpu.burst 200000") {
			t.Errorf("the old quota's burst was written all the same: %q", k.written())
		}
		before := len(k.written())
		r.UpdatePod(t.Context(), sandboxOf(pod), smaller)
		if w := k.written()[before:]; slices.Contains(w, dir+" cpu.burst 0") {
			t.Errorf("the kubelet waited for %q", w)
		}
		enginetest.Eventually(t, "the burst of the new quota", func() bool { return r.tree.Get(t, dir, "cpu.max.burst") == "50000" })
	}
}

// A repair has decided to take a burst back when an update of the container comes first, which knows the new plan only.
func TestUndoIsNotLostToAnUpdate(t *testing.T) {
	t.Parallel()
	r, k := gated(t)
	pod, ctr := bursty(t, r, "updated", workload.StateRunning)
	r.Synchronize([]*workload.Pod{pod}, []engine.Listed{ctr})
	stands := func(want string) func() bool {
		return func() bool { return r.Idle() && r.tree.Get(t, pod.Cgroup+"/c", "cpu.max.burst") == want }
	}
	enginetest.Eventually(t, "the burst", stands("200000"))
	k.waitFor(atPod)
	r.Views().SetFile(&strategy.Spec{}, "test")
	enginetest.Eventually(t, "the repair at the pod", k.closed.Load)
	updated := make(chan struct{})
	go func() {
		defer close(updated)
		r.Update(t.Context(), sandboxOf(pod), ctr.Arrival, workload.Resources{Shares: unit.Some(512)}, nil)
	}()
	enginetest.Eventually(t, "the update", func() bool {
		_, c, _ := r.Known(ctr.ID)
		return c.Base.Shares == unit.Some(512)
	})
	k.let()
	<-updated
	enginetest.Eventually(t, "the end of the burst", stands("0"))
}

// Whoever says that a View is in force asks when all was gone through by it, and what the kernel holds otherwise.
func TestRepairedAndUnlike(t *testing.T) {
	t.Parallel()
	r, k := gated(t)
	pod, ctr := bursty(t, r, "told", workload.StateRunning)
	r.Synchronize([]*workload.Pod{pod}, []engine.Listed{ctr})
	enginetest.Eventually(t, "the first repair", func() bool { return r.Idle() && r.Repaired() >= r.Views().Load().Generation && len(r.Unlike()) == 0 })
	k.waitFor(atPod)
	r.Views().SetFile(percent(t, 50), "test")
	enginetest.Eventually(t, "the repair at the pod", k.closed.Load)
	now := r.Views().Load().Generation
	if got := r.Repaired(); got >= now {
		t.Errorf("repaired to View %d in the middle of a repair to %d", got, now)
	}
	k.let()
	enginetest.Eventually(t, "the end of the repair", func() bool { return r.Repaired() >= now })
	if bad := r.Unlike(); len(bad) > 0 {
		t.Errorf("after the repair %v", bad)
	}
	r.tree.Set(t, pod.Cgroup+"/c", "cpu.max.burst", "0")
	if bad := r.Unlike(); len(bad) != 1 || bad[0].Setting.Knob != plan.CPUBurst || bad[0].Setting.Target.Level != plan.LevelContainer {
		t.Errorf("after a hand has written over the container's burst: %v", bad)
	}
}
