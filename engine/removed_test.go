// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"context"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// What came before a container's removal, and is worked on behind it, does not bring it back, whether or not it was known; a list does
// that the runtime gives while it tells nothing else, and any where only another list had lacked it.
func TestRemovedForGood(t *testing.T) {
	t.Parallel()
	arrival := engine.Arrival{ID: "c1", Read: func(...*protocol.Applied) *workload.Container {
		c := container()
		c.ID, c.State = "c1", workload.StateRunning
		return c
	}}
	type late = func(t *testing.T, r *rig, sb engine.Sandbox, before engine.Roll)
	add := func(_ *testing.T, r *rig, sb engine.Sandbox, _ engine.Roll) {
		r.Add([]*workload.Pod{sb.Read()}, []engine.Listed{{Sandbox: "s", Arrival: arrival}})
	}
	for name, c := range map[string]struct {
		late late
		back bool
	}{
		"a start": {func(t *testing.T, r *rig, sb engine.Sandbox, _ engine.Roll) {
			must(t, r.Start(t.Context(), sb, arrival, 0, ""))
		}, false},
		"an update": {func(t *testing.T, r *rig, sb engine.Sandbox, _ engine.Roll) {
			if _, pl, _ := r.Update(t.Context(), sb, arrival, workload.Resources{Quota: unit.Some(50000)}, nil); len(pl) > 0 {
				t.Errorf("it is answered %v", pl)
			}
		}, false},
		"what a list has new": {add, false},
		"a whole list": {func(_ *testing.T, r *rig, sb engine.Sandbox, before engine.Roll) {
			r.SynchronizeSince(before, []*workload.Pod{sb.Read()}, []engine.Listed{{Sandbox: "s", Arrival: arrival}})
		}, false},
		"a name": {func(t *testing.T, r *rig, sb engine.Sandbox, _ engine.Roll) {
			must(t, r.Decide(sb, container()).Prepare(t.Context(), func(_ *node.View, spec plan.Plan) plan.Plan { return spec }))
			r.Named("pending", "c1", "/kubepods/burstable/podu/c1")
		}, false},
		"a list that nothing comes beside": {func(_ *testing.T, r *rig, sb engine.Sandbox, _ engine.Roll) {
			r.Synchronize([]*workload.Pod{sb.Read()}, []engine.Listed{{Sandbox: "s", Arrival: arrival}})
		}, true},
		"a creation": {func(t *testing.T, r *rig, sb engine.Sandbox, _ engine.Roll) {
			again := container()
			again.ID = "c1"
			must(t, r.Create(t.Context(), sb, again, func(_ *node.View, spec plan.Plan) plan.Plan { return spec }))
		}, false},
	} {
		for how, known := range map[string]bool{"known": true, "not known": false} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, 0)
				sb := r.pod(t, nil)
				if known {
					add(t, r, sb, nil)
				}
				before := r.Roll()
				r.Remove("c1")
				c.late(t, r, sb, before)
				if _, _, back := r.Known("c1"); back != c.back {
					t.Errorf("known: %v", back)
				}
			})
		}
	}
	for name, late := range map[string]func(*rig, engine.Sandbox, engine.Arrival) error{
		"while its start is read": func(r *rig, sb engine.Sandbox, a engine.Arrival) error {
			return r.Start(context.Background(), sb, a, 0, "")
		},
		"while its update is read": func(r *rig, sb engine.Sandbox, a engine.Arrival) error {
			r.Update(context.Background(), sb, a, workload.Resources{}, nil)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 0)
			must(t, late(r, r.pod(t, nil), engine.Arrival{ID: "c1", Read: func(...*protocol.Applied) *workload.Container {
				r.Remove("c1")
				return arrival.Read()
			}}))
			if _, _, back := r.Known("c1"); back {
				t.Error("known")
			}
		})
	}
	t.Run("a name of one with CPUs of its own", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, 0)
		r.tree.Mkdir(t, "/kubepods/poda")
		ask, _ := protocol.ParsePod(map[string]string{protocol.LabelQoSClass: "LSE"}, map[string]string{protocol.AnnotationResourceStatus: `{"cpuset":"1"}`})
		pod := &workload.Pod{ID: "a", UID: "a", Namespace: "default", Name: "a", Cgroup: "/kubepods/poda", QoSCgroup: "/kubepods", Ask: ask}
		sb := engine.Sandbox{ID: "a", Read: func() *workload.Pod { return pod }}
		must(t, r.Decide(sb, &workload.Container{ID: "pa", Name: "c"}).Prepare(t.Context(), func(_ *node.View, spec plan.Plan) plan.Plan { return spec }))
		if got := r.Views().Load().Claims.LSE.String(); got != "1" {
			t.Fatalf("claimed %q", got)
		}
		r.Remove("ida")
		r.Named("pa", "ida", "/kubepods/poda/ida")
		if got := r.Views().Load().Claims.LSE; !got.Empty() {
			t.Errorf("still claimed: %s", got)
		}
	})
	t.Run("with its pod", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, 0)
		sb := r.pod(t, nil)
		add(t, r, sb, nil)
		r.RemovePod("s")
		must(t, r.Start(t.Context(), sb, arrival, 0, ""))
		_, _, back := r.Known("c1")
		if _, pod := r.KnownPod("s"); back || pod {
			t.Errorf("known: %v, its pod: %v", back, pod)
		}
	})
	for name, forget := range map[string]func(*rig){
		"lacked": func(r *rig) { r.Forget("c1") }, "lacked with its pod": func(r *rig) { r.ForgetPod("s") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 0)
			sb := r.pod(t, nil)
			add(t, r, sb, nil)
			forget(r)
			enginetest.Eventually(t, "the end of what follows", r.Idle)
			if _, _, known := r.Known("c1"); known {
				t.Error("still known")
			}
			add(t, r, sb, nil)
			if _, _, back := r.Known("c1"); !back {
				t.Error("not known again")
			}
		})
	}
}
