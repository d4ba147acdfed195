// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// A View is made anew when what the agent has decided differs, and not when it merely holds longer.
func TestSetHandoff(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 22, 1, 0, 0, 0, time.UTC)
	snapshot := func(gen uint64) handoff.Snapshot {
		return handoff.Snapshot{
			Strategy:           &strategy.Spec{CPUBurstStrategy: &strategy.CPUBurstStrategy{CPUBurstPercent: new(int64(500))}},
			StrategyGeneration: 1, DynamicGeneration: gen, PodsGeneration: 1,
			Dynamic: node.Dynamic{
				Known: true, Expires: start.Add(time.Duration(gen) * time.Minute), BECPUs: topo.Range(0, 3),
				Quotas: map[string]node.QuotaLoop{"uid": {Cap: 500}},
			},
			Pods: map[string]node.PodSpec{"uid": {Containers: map[string]node.ContainerSpec{"app": {CPURequest: 500}}}},
		}
	}
	views := NewViews(config.Default().Node, Static{}, nil, "test")
	changes := 0
	views.OnChange(func(bool) { changes++ })
	for i, step := range []struct {
		what   string
		change func(*handoff.Snapshot)
		makes  bool
	}{
		{"the first", func(*handoff.Snapshot) {}, true},
		{"the same, written again", func(*handoff.Snapshot) {}, false},
		{"a problem of a file", func(s *handoff.Snapshot) { s.Problems = []handoff.Problem{{File: "pods.json"}} }, false},
		{"another cap", func(s *handoff.Snapshot) { s.Dynamic.Quotas["uid"] = node.QuotaLoop{Cap: 400} }, true},
		{"another request", func(s *handoff.Snapshot) { s.Pods["uid"].Containers["app"] = node.ContainerSpec{CPURequest: 501} }, true},
		{"another strategy", func(s *handoff.Snapshot) { *s.Strategy.CPUBurstStrategy.CPUBurstPercent = 600 }, true},
		{"that of an earlier boot", func(s *handoff.Snapshot) { s.StrategyFromState = true }, true},
		{"the agent has gone", func(s *handoff.Snapshot) { *s = handoff.Snapshot{} }, true},
		{"and stays away", func(s *handoff.Snapshot) { *s = handoff.Snapshot{} }, false},
	} {
		s := snapshot(uint64(i))
		step.change(&s)
		before, seen := views.Load(), changes
		views.SetHandoff(s)
		after := views.Load()
		if made := after != before; made != step.makes || (changes > seen) != step.makes {
			t.Errorf("%s: a new View %v, a callback %v, want %v", step.what, made, changes > seen, step.makes)
		}
		if after.Dynamic.Quotas["uid"].Cap != s.Dynamic.Quotas["uid"].Cap || len(after.Pods) != len(s.Pods) {
			t.Errorf("%s: the View does not have it", step.what)
		}
	}
	if got := *views.Load().Strategy.CPUBurstStrategy.CPUBurstPercent; got != 1000 {
		t.Errorf("strategy without an agent: %d", got)
	}
}

// A pass over everything that a change asks for is not forgotten when the agent's next state comes before the engine has looked.
func TestWholeBesideAHandoff(t *testing.T) {
	t.Parallel()
	state := func(caps int64) handoff.Snapshot {
		return handoff.Snapshot{Dynamic: node.Dynamic{
			Known: true, Expires: time.Now().Add(time.Hour), Quotas: map[string]node.QuotaLoop{"uid": {Cap: unit.MilliCPU(caps)}},
		}}
	}
	for name, c := range map[string]struct {
		change func(*Views)
		want   bool
	}{
		"a strategy":     {func(v *Views) { v.SetFile(&strategy.Spec{}, "test") }, true},
		"a probe":        {func(v *Views) { v.SetStatic(Static{Topology: &topo.Topology{}}) }, true},
		"a state":        {func(v *Views) { v.SetHandoff(state(200)) }, false},
		"an agent's end": {func(v *Views) { v.SetHandoff(handoff.Snapshot{StrategyFromState: true}) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _ := protector(t, nil, nil)
			next := state(100)
			next.StrategyFromState = name == "an agent's end"
			g.views.SetHandoff(state(500))
			g.whole.Store(false)
			meanwhile := func() { g.views.SetHandoff(next) }
			g.views.OnChange(func(everybody bool) {
				first := meanwhile
				if meanwhile = nil; first != nil {
					first()
				}
				g.viewChanged(everybody)
			})
			c.change(g.views)
			if got := g.whole.Load(); got != c.want {
				t.Errorf("a pass over everything: %v, want %v", got, c.want)
			}
		})
	}
}
