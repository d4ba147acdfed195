// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"errors"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// written is a kernel in which a pod's limits stand, or cannot be read.
type written struct {
	wishes
	quota, memory int64
	err           error
}

// Verify implements Kernel.
func (k *written) Verify(p plan.Plan) (out []apply.Mismatch) {
	for _, s := range p {
		got := map[plan.Knob]int64{plan.CPUQuota: k.quota, plan.MemoryLimit: k.memory}[s.Knob]
		if k.err != nil || s.Value.Int() != got {
			out = append(out, apply.Mismatch{Setting: s, Got: plan.Int(got), Err: k.err})
		}
	}
	return out
}

// A runtime lists a pod as it was made. After a resize the kernel tells what the kubelet has written, the ledger where a value of ours
// stands, and what an event has told is newer than both.
func TestListedPodIsMeasured(t *testing.T) {
	t.Parallel()
	const listed, resized, ours = 50000, 150000, 120000
	pod := func(quota int64) *workload.Pod {
		p := lsr("one")
		p.Base.Quota, p.Base.Shares = unit.Some(quota), unit.Some(204)
		return p
	}
	tell := func(g *Engine, quota int64) {
		g.UpdatePod(t.Context(), Sandbox{ID: "one"}, workload.Resources{Quota: unit.Some(quota), MemoryLimit: unit.Some(3 << 20)})
	}
	list := func(g *Engine, quota int64) { g.Synchronize([]*workload.Pod{pod(quota)}, nil) }
	plans := func(g *Engine) {
		g.reg.changePod("one", func(e *podEntry) {
			e.plan = plan.Plan{{Target: e.p.Target(), Knob: plan.CPUQuota, Value: plan.Int(ours), Owner: protocol.FeatureBatch}}
		})
	}
	left := leftOf(pod(0).Target(), plan.CPUQuota, ours, resized, protocol.FeatureBatch.String())
	for name, c := range map[string]struct {
		left   []apply.Standing
		quota  int64 // in the kernel
		err    error
		before func(*Engine)
		want   int64
	}{
		"resized while nobody was here":            {quota: resized, want: resized},
		"not resized":                              {quota: listed, want: listed},
		"without a limit, which no resize does":    {quota: -1, want: listed},
		"unreadable":                               {quota: resized, err: errors.New("no such file"), want: listed},
		"ours stands, and the ledger knows theirs": {left: []apply.Standing{left}, quota: ours, want: resized},
		"ours stands":                              {quota: ours, before: plans, want: listed},
		"told since":                               {quota: listed, before: func(g *Engine) { tell(g, resized) }, want: resized},
		"told and listed as before, ours stands":   {quota: ours, before: func(g *Engine) { tell(g, resized); plans(g); list(g, listed) }, want: resized},
		"told and listed anew, ours stands":        {quota: ours, before: func(g *Engine) { tell(g, 70000); plans(g); list(g, resized) }, want: resized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _ := bursting(t, c.left...)
			g.o.Kernel = &written{quota: c.quota, memory: 3 << 20, err: c.err}
			list(g, listed)
			if c.before != nil {
				c.before(g)
			}
			g.measure("one")
			e, _ := g.reg.pod("one")
			if e.p.Base.Quota != unit.Some(c.want) {
				t.Errorf("the pod's quota is believed to be %v, want %d", e.p.Base.Quota, c.want)
			}
			if want := map[bool]int64{false: 3 << 20, true: 1 << 20}[c.err != nil]; e.p.Base.MemoryLimit != unit.Some(want) {
				t.Errorf("the pod's memory limit is believed to be %v, want %d", e.p.Base.MemoryLimit, want)
			}
		})
	}
}

// Where nobody tells of a pod's resize its containers' do: the kubelet has raised the pod's limit by then, and lowers it afterwards.
func TestListedPodShifts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		listed, kernel, before, after int64
		ours                          bool
		times                         int // containers, one after the other
		want                          int64
	}{
		"raised already":               {listed: 50000, kernel: 150000, before: 50000, after: 150000, want: 150000},
		"to be lowered":                {listed: 50000, kernel: 150000, before: 150000, after: 60000, want: 60000},
		"raised, with ours over it":    {listed: 50000, kernel: 120000, before: 50000, after: 150000, ours: true, want: 150000},
		"one of two containers raised": {listed: 70000, kernel: 170000, before: 50000, after: 150000, want: 170000},
		"two raised":                   {listed: 100000, kernel: 140000, before: 50000, after: 70000, times: 2, want: 140000},
		"two to be lowered":            {listed: 100000, kernel: 100000, before: 50000, after: 30000, times: 2, want: 60000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _ := bursting(t)
			g.o.Kernel = &written{quota: c.kernel, memory: 3 << 20}
			p := lsr("one")
			p.Base.Quota = unit.Some(c.listed)
			g.Synchronize([]*workload.Pod{p}, nil)
			if c.ours {
				g.reg.changePod("one", func(e *podEntry) {
					e.plan = plan.Plan{{Target: e.p.Target(), Knob: plan.CPUQuota, Value: plan.Int(c.kernel), Owner: protocol.FeatureBatch}}
				})
			}
			before, after := workload.Resources{Quota: unit.Some(c.before)}, workload.Resources{Quota: unit.Some(c.after)}
			for range max(c.times, 1) {
				from := unmoved(before, after, g.measure("one"))
				g.shiftPod("one", &from, &after)
			}
			if e, _ := g.reg.pod("one"); e.p.Base.Quota != unit.Some(c.want) {
				t.Errorf("the pod's quota is believed to be %v, want %d", e.p.Base.Quota, c.want)
			}
		})
	}
}
