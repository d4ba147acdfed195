// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// paper is an edge whose specification carries nothing but the knobs given: all else is left for after the start.
type paper plan.Knobs

func (p paper) keeps(s *plan.Setting) bool {
	return s.Target.Level == plan.LevelContainer && plan.Knobs(p).Has(s.Knob)
}

// Mark implements engine.Edge.
func (p paper) Mark(v *node.View, pl plan.Plan, c *workload.Container) *protocol.Applied {
	return mark.Of(mark.By{Generation: v.Generation, Program: "paper", Version: "1"}, pl, &c.Base, p.keeps)
}

const burst = "cpuBurstStrategy: {policy: cpuBurstOnly, cpuBurstPercent: 1000}\n"

// rig is an engine on a fake v2 kernel.
type rig struct {
	*engine.Engine
	tree *kerneltest.Tree
	book *enginetest.Journal
}

func newRig(t testing.TB, edge paper, change ...func(*engine.Options)) *rig {
	t.Helper()
	m := enginetest.New(t, "6.12", "/kubepods/burstable")
	cfg := config.Default().Node
	cfg.Deadline = config.Duration(time.Minute) // whoever is to be late says so
	o := m.Options(t, cfg, edge, burst, plan.CPUBurst, plan.CPUQuota, plan.CPUPeriod)
	o.Drift, o.ExitsUntold, o.CgroupRoot = time.Hour, true, m.Tree.Roots.Cgroup
	for _, f := range change {
		f(&o)
	}
	r := &rig{Engine: engine.New(o), tree: m.Tree, book: m.Journal}
	enginetest.Run(t, r.Engine)
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) pod(t *testing.T, annotations map[string]string) engine.Sandbox {
	t.Helper()
	r.tree.Mkdir(t, "/kubepods/burstable/podu")
	ask, problems := protocol.ParsePod(map[string]string{protocol.LabelQoSClass: "LS"}, annotations)
	pod := &workload.Pod{
		ID: "s", UID: "u", Namespace: "default", Name: "web", KubeQoS: protocol.KubeBurstable, Cgroup: "/kubepods/burstable/podu",
		QoSCgroup: "/kubepods/burstable", Ask: ask, Problems: problems,
	}
	return engine.Sandbox{ID: "s", Read: func() *workload.Pod { return pod }}
}

func container() *workload.Container {
	return &workload.Container{ID: "pending", Name: "app", Cgroup: "/kubepods/burstable/podu/new", Base: workload.Resources{
		Shares: unit.Some(1024), Quota: unit.Some(200000), Period: unit.Some(100000),
	}}
}

// A container that gets its id after its creation is written, proved and recorded under that id, and not before.
func TestNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	sb := r.pod(t, nil)
	var left plan.Plan
	must(t, r.Decide(sb, container()).Prepare(t.Context(), func(_ *node.View, spec plan.Plan) plan.Plan { left = spec; return spec }))
	if left.Get(plan.CPUBurst) == nil {
		t.Fatalf("plan = %v", left)
	}
	if r.IDs()["pending"] {
		t.Error("a container without an id counts as known")
	}
	const dir = "/kubepods/burstable/podu/c1"
	r.tree.Mkdir(t, dir)
	r.tree.Set(t, dir, "cpu.max", "200000 100000")
	r.Named("pending", "c1", dir)
	if _, c, ok := r.Known("c1"); !ok || c.Cgroup != dir {
		t.Fatalf("known = %+v, %v", c, ok)
	}
	must(t, r.Start(t.Context(), sb, engine.Arrival{ID: "c1"}, 0, ""))
	if got := r.tree.Get(t, dir, "cpu.max.burst"); got != "200000" {
		t.Errorf("cpu.max.burst = %q", got)
	}
	enginetest.Eventually(t, "proof in the journal", func() bool { return len(r.book.Of("c1", "cpu.burst")) >= 2 })
	if early := r.book.Of("pending", "cpu.burst"); len(early) > 0 {
		t.Errorf("recorded under a name that is none: %+v", early)
	}
}

// A container that the runtime has not made is forgotten.
func TestDropped(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	must(t, r.Decide(r.pod(t, nil), container()).Prepare(t.Context(), func(_ *node.View, spec plan.Plan) plan.Plan { return spec }))
	r.Dropped("s", "pending")
	if _, _, ok := r.Known("pending"); ok {
		t.Error("still known")
	}
	r.Named("pending", "c1", "/x") // too late to matter
	if _, _, ok := r.Known("c1"); ok {
		t.Error("a forgotten container came back")
	}
}

// What must hold before the first instruction and cannot stand in the specification is refused; what can is not.
func TestPrepareRefuses(t *testing.T) {
	t.Parallel()
	must := map[string]string{protocol.AnnotationRequired: "cpu-burst"}
	late := newRig(t, 0)
	err := late.Decide(late.pod(t, must), container()).Prepare(t.Context(), func(_ *node.View, spec plan.Plan) plan.Plan { return spec })
	if err == nil || !strings.Contains(err.Error(), "cpu.burst") {
		t.Errorf("error = %v", err)
	}
	if _, _, ok := late.Known("pending"); ok {
		t.Error("a refused container is known")
	}
	able := newRig(t, paper(plan.KnobSet(plan.CPUBurst)))
	if err := able.Decide(able.pod(t, must), container()).Prepare(t.Context(), func(*node.View, plan.Plan) plan.Plan { return nil }); err != nil {
		t.Error(err)
	}
}

// What a hook server wants is joined to every decision about the container, also after its naming.
func TestForeign(t *testing.T) {
	t.Parallel()
	r := newRig(t, paper(plan.KnobSet(plan.CPUShares)), func(o *engine.Options) {
		o.Join = func(ours, foreign plan.Plan) plan.Plan { return append(ours[:len(ours):len(ours)], foreign...) }
	})
	sb := r.pod(t, nil)
	c := container()
	c.Foreign = plan.Plan{{Knob: plan.CPUShares, Target: plan.Target{Level: plan.LevelContainer}, Value: plan.Int(77), Hook: "agent", Owner: protocol.FeatureBatch}}
	must(t, r.Decide(sb, c).Prepare(t.Context(), func(_ *node.View, spec plan.Plan) plan.Plan {
		if s := spec.Get(plan.CPUShares); s == nil || s.By() != "hook:agent" {
			t.Errorf("plan = %v", spec)
		}
		return nil
	}))
	r.Named("pending", "c1", "/kubepods/burstable/podu/c1")
	enginetest.Eventually(t, "record of what the specification holds", func() bool {
		list := r.book.Of("c1", "cpu.shares")
		return len(list) == 1 && list[0].Owner == "hook:agent" && list[0].Want == "77" && list[0].Base == "1024"
	})
	if marks := r.Marked("c1"); len(marks) != 1 || marks[0].Set["cpu.shares"] != "77 hook:agent" {
		t.Errorf("marks = %+v", marks)
	}
}

// Add takes in only what is not known, and Remove what has vanished.
func TestAdd(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	sb := r.pod(t, nil)
	const dir = "/kubepods/burstable/podu/c1"
	r.tree.Mkdir(t, dir)
	r.tree.Set(t, dir, "cpu.max", "200000 100000")
	read := func(...*protocol.Applied) *workload.Container {
		c := container()
		c.ID, c.Cgroup, c.State = "c1", dir, workload.StateRunning
		return c
	}
	r.Add([]*workload.Pod{sb.Read()}, []engine.Listed{{Sandbox: "s", Arrival: engine.Arrival{ID: "c1", Read: read}}})
	enginetest.Eventually(t, "repair", func() bool { return r.tree.Get(t, dir, "cpu.max.burst") == "200000" })
	before, _, _ := r.Known("c1")
	again := func(...*protocol.Applied) *workload.Container {
		t.Error("a known container was read again")
		return container()
	}
	r.Add(nil, []engine.Listed{{Sandbox: "s", Arrival: engine.Arrival{ID: "c1", Read: again}}})
	if !r.IDs()["c1"] || before == nil {
		t.Error("the container is not known")
	}
	r.Remove("c1")
	if len(r.IDs()) != 0 {
		t.Error("a removed container is known")
	}
}

// What the mark says to be a hook server's holds for a program that asks none itself, with all that goes with it: a burst
// of ours above a quota of theirs would be refused.
func TestForeignByMark(t *testing.T) {
	t.Parallel()
	r := newRig(t, paper(plan.KnobSet(plan.CPUQuota, plan.CPUBurst)))
	c := container()
	c.Applied = &protocol.Applied{Generation: 9, By: "koord-runtime-proxy/1", Set: map[string]string{"cpu.quota": "50000 hook:agent", "cpu.shares": "2 batch"}}
	must(t, r.Create(t.Context(), r.pod(t, nil), c, func(_ *node.View, spec plan.Plan) plan.Plan {
		if s := spec.Get(plan.CPUQuota); s == nil || s.Value.Int() != 50000 || s.By() != "hook:agent" {
			t.Errorf("quota = %v", s)
		}
		if spec.Get(plan.CPUBurst) != nil || spec.Get(plan.CPUShares) != nil {
			t.Errorf("plan = %v", spec)
		}
		return nil
	}))
}

// Claims of exclusive CPUs are never lost between events that come at once.
func TestClaimsTogether(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	claim := func(name, cpus string) engine.Sandbox {
		dir := "/kubepods/pod" + name
		r.tree.Mkdir(t, dir)
		ask, _ := protocol.ParsePod(map[string]string{protocol.LabelQoSClass: "LSE"}, map[string]string{protocol.AnnotationResourceStatus: `{"cpuset":"` + cpus + `"}`})
		pod := &workload.Pod{ID: name, UID: name, Namespace: "default", Name: name, Cgroup: dir, QoSCgroup: "/kubepods", Ask: ask}
		return engine.Sandbox{ID: name, Read: func() *workload.Pod { return pod }}
	}
	a, b := claim("a", "1"), claim("b", "2")
	all := func(_ *node.View, spec plan.Plan) plan.Plan { return spec }
	for i := range 2000 {
		must(t, r.Decide(a, &workload.Container{ID: "pa", Name: "c"}).Prepare(t.Context(), all))
		var wg sync.WaitGroup
		id := "ida" + strconv.Itoa(i)
		wg.Go(func() { r.Named("pa", id, "/kubepods/poda/"+id) })
		wg.Go(func() { _ = r.Decide(b, &workload.Container{ID: "pb", Name: "c"}).Prepare(t.Context(), all) })
		wg.Wait()
		if got := r.Views().Load().Claims.LSE.String(); got != "1-2" {
			t.Fatalf("round %d: claimed %q", i, got)
		}
		r.Remove(id)
		r.Dropped("b", "pb")
	}
	if got := r.Views().Load().Claims.LSE; !got.Empty() {
		t.Errorf("left: %s", got)
	}
}

// What a hook server wanted of the values at creation does not pin a resize.
func TestForeignAtUpdate(t *testing.T) {
	t.Parallel()
	r := newRig(t, paper(plan.KnobSet(plan.CPUQuota)), func(o *engine.Options) {
		o.Join = func(ours, foreign plan.Plan) plan.Plan { return append(ours[:len(ours):len(ours)], foreign...) }
	})
	sb, c := r.pod(t, nil), container()
	c.Foreign = plan.Plan{{Knob: plan.CPUQuota, Target: plan.Target{Level: plan.LevelContainer}, Value: plan.Int(120000), Hook: "agent"}}
	must(t, r.Decide(sb, c).Prepare(t.Context(), func(*node.View, plan.Plan) plan.Plan { return nil }))
	r.Named("pending", "c1", "/kubepods/burstable/podu/c1")
	_, full, _ := r.Update(t.Context(), sb, engine.Arrival{ID: "c1"}, workload.Resources{Quota: unit.Some(400000)}, nil)
	if s := full.Get(plan.CPUQuota); s != nil && s.Value.Int() != 400000 {
		t.Errorf("quota of a resize to 400000 = %s", s.Value)
	}
}
