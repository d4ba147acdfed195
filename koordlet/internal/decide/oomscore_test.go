// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// A service that nears its limit on a calm node is judged by what it uses, where tuning is asked for and everything is known; best effort
// is not. What is file cache does not count.
func TestOOMScore(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		node, cache float64 // GiB
		change      func(*decide.Facts)
		want        int64
	}{
		"near":           {node: 40, want: 900}, // of a limit of 10 of 100 GiB
		"a full node":    {node: 81},
		"near eviction":  {node: 66, want: 0},
		"file cache":     {node: 40, cache: 4},
		"without tuning": {node: 40, change: func(f *decide.Facts) { f.Tune = false }},
		"opted out": {node: 40, change: func(f *decide.Facts) {
			f.Members[1].Pod.Ask.OptOut = protocol.FeatureSet(0).With(protocol.FeatureOOMScore)
		}},
		"observed only": {node: 40, change: func(f *decide.Facts) { f.View.Modes[protocol.FeatureOOMScore] = node.Observe }},
		"asked for":     {node: 40, change: func(f *decide.Facts) { f.Members[1].Pod.Ask.OOMScoreAdj = new(950) }},
		"ceded":         {node: 40, change: func(f *decide.Facts) { f.View.Ceded = plan.KnobSet(plan.OOMScoreAdj) }},
		"the node's least": {node: 40, want: 950, change: func(f *decide.Facts) {
			f.View.Limits.OOMScoreAdjMin = unit.Some(950)
		}},
		"best effort": {node: 40, change: func(f *decide.Facts) { f.Members[1].Pod.Ask.QoS = protocol.QoSBE }},
		"no limit":    {node: 40, change: func(f *decide.Facts) { f.Members[1].Containers[0].Base.MemoryLimit = unit.Opt{} }},
		"not told its own": {node: 40, change: func(f *decide.Facts) {
			f.Members[1].Containers[0].Base.OOMScoreAdj = unit.Opt{}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, w := facts("cpuset")
			f.View.Strategy.ResourceUsedThresholdWithBE.MemoryEvictThresholdPercent = new(int64(70))
			f.Tune = true
			f.Members[1].Containers = []*workload.Container{{
				ID: "c1", Name: "app", Base: workload.Resources{MemoryLimit: unit.Some(10 * gib), OOMScoreAdj: unit.Some(990)},
			}}
			if tc.change != nil {
				tc.change(f)
			}
			var s decide.State
			var out decide.Outcome
			for range 12 {
				f.Now += unit.Second
				one, at := sample.OfContainer("c1"), f.Now-unit.Second/2
				w.Append([]sample.Sample{
					{Subject: sample.OfNode(), Metric: sample.MemoryUsage, Value: tc.node * gib, At: at},
					{Subject: one, Metric: sample.MemoryUsage, Value: (9.6 - tc.cache) * gib, At: at},
					{Subject: one, Metric: sample.MemoryWithPageCache, Value: 9.6 * gib, At: at},
					{Subject: one, Metric: sample.MemoryCharged, Value: 9.6 * gib, At: at},
				})
				s, out = decide.Step(s, f)
			}
			if got := out.Dynamic.OOMScores["c1"]; got.Score != tc.want || (got.Reason == "") != (tc.want == 0) || len(out.Dynamic.OOMScores) > 1 {
				t.Errorf("%+v, want %d", out.Dynamic.OOMScores, tc.want)
			}
		})
	}
}
