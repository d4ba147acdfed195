// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// marking makes marks as every edge does.
type marking struct{}

func (marking) Mark(v *node.View, pl plan.Plan, c *workload.Container) *protocol.Applied {
	return mark.Of(mark.By{Generation: v.Generation}, pl, &c.Base, func(*plan.Setting) bool { return true })
}

// What a stamp says of the runtime's record is what its mark says in texts, before that is made and after it.
func TestStampsRecord(t *testing.T) {
	t.Parallel()
	target := plan.Target{Level: plan.LevelContainer, Container: "c", Cgroup: "/kubepods/podu/c"}
	set := func(k plan.Knob, v plan.Value) plan.Setting {
		return plan.Setting{Target: target, Knob: k, Value: v, Owner: protocol.FeatureBatch, Reason: "of an earlier life"}
	}
	observed, pods, hooks := set(plan.CPUPeriod, plan.Int(50000)), set(plan.CPUQuota, plan.Int(1)), set(plan.CPUSetMems, plan.Text("0"))
	observed.Observe, pods.Target.Level, hooks.Hook = true, plan.LevelPod, "h"
	pl := plan.Plan{
		set(plan.CPUShares, plan.Int(512)), set(plan.CPUQuota, plan.Int(50000)), set(plan.CPUBurst, plan.Int(20000)), set(plan.MemoryLimit, plan.Int(0)),
		set(plan.CPUSetCPUs, plan.Text("")), set(plan.MemoryMin, plan.Int(4096)), set(plan.OOMScoreAdj, plan.Int(5)), set(plan.Env, plan.Text("x")), observed, pods, hooks,
	}
	c := &workload.Container{ID: "c", Base: workload.Resources{Shares: unit.Some(512)}} // the kubelet's own
	g := &Engine{o: Options{Edge: marking{}}}
	for name, want := range map[string]struct {
		v *node.View
		n int
	}{
		"v1": {&node.View{Kernel: node.Kernel{Cgroup: node.CgroupV1}}, 2},
		"v2": {&node.View{Kernel: node.Kernel{Cgroup: node.CgroupV2}, Runtime: node.Runtime{Fields: node.Fields{Unified: true}}}, 4},
	} {
		m := g.markOf(want.v, pl, c)
		early := m.record()
		texts := inRecord(want.v, mark.PlanOf(m.get(), target))
		byID := cmp.Transformer("id", func(p plan.Plan) map[plan.ID]string {
			out := map[plan.ID]string{}
			for i := range p {
				out[p[i].ID()] = p[i].String()
			}
			return out
		})
		for when, got := range map[string]plan.Plan{"before": early, "after": m.record()} {
			if diff := cmp.Diff(texts, got, byID); diff != "" || len(got) != want.n {
				t.Errorf("%s, %s: %d (-texts +stamp):\n%s", name, when, len(got), diff)
			}
		}
	}
	if got := (*stamp)(nil).record(); got != nil {
		t.Errorf("no stamp: %v", got)
	}
}

// counted counts the marks that are made.
type counted struct {
	marking
	n int
}

func (c *counted) Mark(v *node.View, pl plan.Plan, ctr *workload.Container) *protocol.Applied {
	c.n++
	return c.marking.Mark(v, pl, ctr)
}

// An update makes no mark to know what the one before was answered with: a kubelet waits for it.
func TestUpdateMakesNoMark(t *testing.T) {
	t.Parallel()
	g, _, sandbox, arrival := resized(t, 60000)
	edge := &counted{}
	g.o.Edge = edge
	for _, quota := range []int64{90000, 80000} {
		g.DecideUpdate(sandbox, arrival, workload.Resources{Quota: unit.Some(quota)}, nil)
	}
	if edge.n > 0 {
		t.Errorf("%d marks are made", edge.n)
	}
	e, _ := g.reg.container(arrival.ID)
	if e.mark.get(); edge.n != 1 {
		t.Errorf("%d marks are made when one is asked for", edge.n)
	}
}
