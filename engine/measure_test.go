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

// Where updates are untold a pod that was resized before this life is measured, too, but only what its containers add up to is the
// kubelet's: other values are another engine's.
func TestListedPodIsItsContainers(t *testing.T) {
	t.Parallel()
	const listed, resized, mib = 50000, 150000, 1 << 20
	for name, c := range map[string]struct {
		containers    []int64 // their quotas; the memory limits are as many MiB as there are containers
		quota, memory int64   // of the pod, in the kernel
		theirs        int64   // what stood before our quota, by the ledger; 0 when there is none
		wantQuota     int64
		wantMemory    int64
	}{
		"resized":                     {[]int64{100000, 50000}, resized, 2 * mib, 0, resized, 2 * mib},
		"another engine's quota":      {[]int64{100000, 50000}, 165000, 2 * mib, 0, listed, 2 * mib},
		"another engine has taken it": {[]int64{100000, 50000}, -1, 2 * mib, 0, listed, 2 * mib},
		"one has no limit":            {[]int64{resized, -1}, resized, 2 * mib, 0, listed, 2 * mib},
		"the first has no limit":      {[]int64{-1, resized}, resized, 2 * mib, 0, listed, 2 * mib},
		"no container":                {nil, resized, 2 * mib, 0, listed, 1 * mib},
		"ours stands":                 {[]int64{100000, 50000}, 120000, 2 * mib, resized, resized, 2 * mib},
		"ours stands over another's":  {[]int64{100000, 50000}, 120000, 2 * mib, 165000, listed, 2 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := lsr("one")
			var left []apply.Standing
			if c.theirs > 0 {
				left = append(left, leftOf(p.Target(), plan.CPUQuota, c.quota, c.theirs, protocol.FeatureBatch.String()))
			}
			g, _ := bursting(t, left...)
			k := &written{quota: c.quota, memory: c.memory}
			g.o.Kernel, g.o.UpdatesUntold = k, true
			p.Base.Quota, p.Base.MemoryLimit = unit.Some(listed), unit.Some(1*mib)
			var list []Listed
			var last workload.Container
			for i, quota := range c.containers {
				one := workload.Container{ID: string(rune('a' + i)), Name: "app", State: workload.StateRunning, Cgroup: p.Cgroup + "/" + string(rune('a'+i))}
				one.Base.Quota, one.Base.MemoryLimit = unit.Some(quota), unit.Some(1*mib)
				list = append(list, Listed{Sandbox: p.ID, Arrival: Arrival{ID: one.ID, Read: func(...*protocol.Applied) *workload.Container { it := one; return &it }}})
				last = one
			}
			g.Synchronize([]*workload.Pod{p}, list)
			k.err = errors.New("no such file")
			g.measure("one") // which is no answer: the next one is asked for
			k.err = nil
			g.measure("one")
			sized := func(quota, memory int64) {
				t.Helper()
				if e, _ := g.reg.pod("one"); e.p.Base.Quota != unit.Some(quota) || e.p.Base.MemoryLimit != unit.Some(memory) {
					t.Errorf("the pod is believed to have %v and %v, want %d and %d", e.p.Base.Quota, e.p.Base.MemoryLimit, quota, memory)
				}
			}
			sized(c.wantQuota, c.wantMemory)
			if k.quota, k.memory = 70000, 9*mib; len(list) > 0 {
				g.measure("one") // once is enough
				sized(c.wantQuota, c.wantMemory)
			}
			if last.Base.Quota.V > 0 {
				next := last.Base
				next.Quota = unit.Some(next.Quota.V + 20000)
				g.Update(t.Context(), Sandbox{ID: "one"}, list[len(list)-1].Arrival, next, nil)
				sized(c.wantQuota+20000, c.wantMemory)
			}
		})
	}
}

// The first to look at a pod may be the update of one of its containers, before or after the kubelet has written the pod.
func TestFirstUpdateOfAListedPod(t *testing.T) {
	t.Parallel()
	for name, kernel := range map[string]int64{"pod first": 70000, "container first": 50000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _, sandbox, arrival := resized(t, 50000)
			g.o.Kernel, g.o.UpdatesUntold = &written{quota: kernel, memory: 1 << 20}, true
			g.Update(t.Context(), sandbox, arrival, workload.Resources{Quota: unit.Some(70000)}, nil)
			if e, _ := g.reg.pod(sandbox.ID); e.p.Base.Quota != unit.Some(70000) {
				t.Errorf("the pod is believed to have %v, want 70000", e.p.Base.Quota)
			}
		})
	}
}
