// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// sandboxes are those that count as running.
func sandboxes(r *registry) (ids []string) {
	for _, e := range r.podList() {
		ids = append(ids, e.p.ID)
	}
	slices.Sort(ids)
	return ids
}

// A new sandbox of a pod ends the earlier one and takes over what that has in the cgroup, so that it is taken back when nobody wants
// it any more; a pod that is another is left alone.
func TestSucceed(t *testing.T) {
	t.Parallel()
	r := newRegistry()
	old := plan.Plan{{Knob: plan.MemoryMin, Value: plan.Int(7)}}
	r.putPod(podEntry{p: &workload.Pod{ID: "old", UID: "u", Cgroup: "/pods/u"}, plan: old, minAbove: 7})
	r.putPod(podEntry{p: &workload.Pod{ID: "other", UID: "v", Cgroup: "/pods/v"}, plan: plan.Plan{}})
	r.putPod(podEntry{p: &workload.Pod{ID: "new", UID: "u", Cgroup: "/pods/u"}})
	r.succeed("new")
	r.succeed("nobody")
	if got := sandboxes(r); !slices.Equal(got, []string{"new", "other"}) {
		t.Errorf("running: %q", got)
	}
	e, _ := r.pod("new")
	if len(e.plan) != 1 || e.minAbove != 7 {
		t.Errorf("taken over: %+v", e)
	}
	if was, _ := r.pod("old"); was.minAbove != 0 {
		t.Error("the old sandbox still counts in the sums above")
	}
	for id, want := range map[string]bool{"old": true, "new": true, "other": false} {
		if e, _ := r.pod(id); r.shared(e.p) != want {
			t.Errorf("%s: shared %t", id, !want)
		}
	}
}

// Of a list with a pod's dead sandbox beside its living one only the living one counts, as far as the list tells.
func TestOutlived(t *testing.T) {
	t.Parallel()
	pod := func(id, uid string, pid int) podEntry {
		return podEntry{p: &workload.Pod{ID: id, UID: uid, PID: pid}}
	}
	of := func(sandbox string, state workload.State) []entry {
		return []entry{{sandbox: sandbox, c: &workload.Container{State: state}}}
	}
	for name, tc := range map[string]struct {
		pods       []podEntry
		containers []entry
		want       []string // that have ended
	}{
		"one each":        {pods: []podEntry{pod("a", "u", 0), pod("b", "v", 0)}},
		"by process":      {pods: []podEntry{pod("a", "u", 0), pod("b", "u", 9)}, want: []string{"a"}},
		"by container":    {pods: []podEntry{pod("a", "u", 0), pod("b", "u", 0)}, containers: of("a", workload.StateRunning), want: []string{"b"}},
		"ended container": {pods: []podEntry{pod("a", "u", 0), pod("b", "u", 0)}, containers: of("a", workload.StateStopped)},
		"nobody knows":    {pods: []podEntry{pod("a", "u", 0), pod("b", "u", 0)}},
		"without UID":     {pods: []podEntry{pod("a", "", 0), pod("b", "", 9)}},
	} {
		had := plan.Plan{{Knob: plan.MemoryMin}}
		tc.pods[0].plan = had
		outlived(tc.pods, tc.containers)
		var got []string
		for _, e := range tc.pods {
			if e.stopped {
				got = append(got, e.p.ID)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: ended %q, want %q", name, got, tc.want)
		}
		if name == "by process" && len(tc.pods[1].plan) != 1 {
			t.Errorf("%s: what the dead one has in the cgroup was lost", name)
		}
	}
}

// Waiting for the pod and waiting for CPUs end together: together they leave a handler time for its own work.
func TestReadyHasOneLimit(t *testing.T) {
	t.Parallel()
	g, _ := crowd(t)
	g.SetDeadline(1 << 50) // days: who took a half of it for himself would not come back
	g.settleSoon("s-ls1")
	if mine, _ := g.unsettled.claim("s-ls1"); !mine {
		t.Fatal("somebody else is at it")
	}
	defer g.unsettled.release("s-ls1")
	g.moves.done["c-ls1"] = make(chan struct{})
	for range 2 { // a displacement that has not ended is waited for the next time, too
		missing := g.ready(t.Context(), "s-ls1", "c-ls1", protocol.FeatureSet(0).With(protocol.FeatureCPUSet), time.Now())
		if len(missing) != 2 {
			t.Errorf("missing: %q", missing)
		}
	}
	var told []string // once each, by names
	for _, p := range g.Status().Problems {
		if strings.Contains(p.Reason, "at start") {
			told = append(told, p.Where+" "+p.Key)
		}
	}
	slices.Sort(told)
	if want := []string{"default/ls1 pod", "default/ls1/app cpuset"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
	if missing := g.ready(t.Context(), "s-ls1", "c-ls1", 0, time.Now()); len(missing) != 0 {
		t.Errorf("missing of what nobody demands: %q", missing)
	}
	close(g.moves.done["c-ls1"])
	if !g.moves.wait(t.Context(), g, "c-ls1", time.Now()) || len(g.moves.done) != 0 {
		t.Error("a displacement that has ended is not forgotten")
	}
}

// A new sandbox that has been settled before it succeeds the earlier one still takes back what that has in the pod's cgroup.
func TestSucceedLate(t *testing.T) {
	t.Parallel()
	r := newRegistry()
	had := plan.Plan{{Knob: plan.MemoryMin, Value: plan.Int(7)}, {Knob: plan.CPUBurst, Value: plan.Int(8)}}
	r.putPod(podEntry{p: &workload.Pod{ID: "old", UID: "u"}, plan: had, before: had[:1]})
	r.putPod(podEntry{p: &workload.Pod{ID: "new", UID: "u"}, plan: plan.Plan{{Knob: plan.CPUBurst, Value: plan.Int(9)}}, gen: 3})
	r.succeed("new")
	e, _ := r.pod("new")
	if min, burst := e.plan.Get(plan.MemoryMin), e.plan.Get(plan.CPUBurst); min == nil || burst.Value.Int() != 9 || e.gen != undecided || len(e.before) != 1 {
		t.Errorf("taken over: %+v", e)
	}
}

// So it does where it succeeds while it is being settled.
func TestSucceedWithinASettlement(t *testing.T) {
	t.Parallel()
	g, _ := protector(t, nil, nil)
	had := plan.Plan{{Knob: plan.CPUBurst, Value: plan.Int(8)}}
	g.reg.putPod(podEntry{p: lsr("old"), plan: had, before: had})
	next := lsr("new")
	next.UID, next.Cgroup = "old", lsr("old").Cgroup
	g.reg.putPod(podEntry{p: next, plan: plan.Plan{}})
	read, _ := g.reg.pod("new")
	g.reg.succeed("new")
	if pl := g.decidePod(g.views.Load(), &read); pl.Get(plan.CPUBurst) != nil || read.plan.Get(plan.CPUBurst) == nil || len(read.before) != 1 {
		t.Errorf("decided %v after %v, before which stood %v", pl, read.plan, read.before)
	}
}
