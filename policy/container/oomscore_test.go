// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/container"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

// Nobody asks himself out of reach: the node's limit, else an ordinary process's 0, or the kubelet's own below it.
func TestOOMScoreLimits(t *testing.T) {
	t.Parallel()
	const byNode, ordinary, kubelets = "capped by the node", "capped by the node at an ordinary process's", "capped by the node at the kubelet's own"
	for name, tc := range map[string]struct {
		class protocol.QoS
		asked int
		least unit.Opt
		want  string // empty: nothing is set
		why   string
	}{
		"the node's limit":            {protocol.QoSLS, -900, unit.Some(-500), "-500", byNode},
		"above the node's limit":      {protocol.QoSLS, -400, unit.Some(-500), "-400", ""},
		"the node's limit is above":   {protocol.QoSLSR, -900, unit.Some(100), "100", byNode},
		"no limit":                    {protocol.QoSLS, -900, unit.Opt{}, "0", ordinary},
		"no limit, best effort":       {protocol.QoSBE, -1000, unit.Opt{}, "0", ordinary},
		"no limit, above 0":           {protocol.QoSBE, 900, unit.Opt{}, "900", ""},
		"no limit, the kubelet's own": {protocol.QoSLSR, -1000, unit.Opt{}, "", ""},
		"no limit, above the kubelet": {protocol.QoSLSR, -500, unit.Opt{}, "-500", ""},
		"too high":                    {protocol.QoSLS, 1000, unit.Opt{}, "990", byNode},
	} {
		v, p := pt.View(), pt.Pod(tc.class)
		v.Limits.OOMScoreAdjMin, v.Limits.OOMScoreAdjMax = tc.least, 990
		p.Ask.OOMScoreAdj = &tc.asked
		pl, _ := container.Decide(v, p, pt.Container(p))
		got, why := "", ""
		for i := range pl {
			if pl[i].Knob == plan.OOMScoreAdj {
				got, why = pl[i].Value.String(), pl[i].Reason
			}
		}
		if got != tc.want || !strings.Contains(why, tc.why) || tc.why == "" && strings.Contains(why, "capped") {
			t.Errorf("%s: %q (%s), want %q (%s)", name, got, why, tc.want, tc.why)
		}
	}
	// A wish that ends at the kubelet's own is nothing to write, and is capped all the same.
	v, p := pt.View(), pt.Pod(protocol.QoSLSR)
	v.Limits.OOMScoreAdjMin = unit.Opt{}
	asked := -1000
	p.Ask.OOMScoreAdjByContainer = map[string]int{"app": asked}
	c := pt.Container(p)
	c.Base.OOMScoreAdj = unit.Some(-5)
	pl, _ := container.Decide(v, p, c)
	for i := range pl {
		if pl[i].Knob == plan.OOMScoreAdj {
			t.Errorf("planned %s", &pl[i])
		}
	}
	c.Base.OOMScoreAdj = unit.Opt{}
	pl, _ = container.Decide(v, p, c)
	if got := pt.Set(pl)["oom_score_adj"]; got != "0" {
		t.Errorf("the kubelet's own is not known: %q, want 0", got)
	}
}

// Tuning's score stands where nobody asks for one, within the node's limits, for the processes that have the one they began with.
func TestTunedOOMScore(t *testing.T) {
	t.Parallel()
	const base = 985 // of policytest's LS container
	for name, tc := range map[string]struct {
		tuned  int64
		change func(*node.View, *workload.Pod)
		want   string
		only   unit.Opt
	}{
		"tuned":                 {943, nil, "943", unit.Some(base)},
		"no lower than its own": {base, nil, "", unit.Opt{}},
		"within the node's":     {3, func(v *node.View, _ *workload.Pod) { v.Limits.OOMScoreAdjMin = unit.Some(900) }, "900", unit.Some(base)},
		"the node has no room":  {3, func(v *node.View, _ *workload.Pod) { v.Limits.OOMScoreAdjMin = unit.Some(990) }, "", unit.Opt{}},
		"asked for":             {943, func(_ *node.View, p *workload.Pod) { p.Ask.OOMScoreAdj = new(950) }, "950", unit.Opt{}},
		"opted out": {943, func(_ *node.View, p *workload.Pod) {
			p.Ask.OptOut = p.Ask.OptOut.With(protocol.FeatureOOMScore)
		}, "", unit.Opt{}},
		"ceded": {943, func(v *node.View, _ *workload.Pod) { v.Ceded = plan.KnobSet(plan.OOMScoreAdj) }, "", unit.Opt{}},
	} {
		v, p := pt.View(), pt.Pod(protocol.QoSLS)
		c := pt.Container(p)
		c.ID = "c"
		v.Dynamic.OOMScores = map[string]node.OOMScore{"c": {Score: tc.tuned, Reason: "near its limit"}, "another": {Score: 3}}
		if tc.change != nil {
			tc.change(v, p)
		}
		if got := container.BaseOOMScore(p, c); got != unit.Some(base) && name != "asked for" || name == "asked for" && got.Set {
			t.Errorf("%s: its own is %+v", name, got)
		}
		pl, _ := container.Decide(v, p, c)
		var got string
		var only unit.Opt
		for i := range pl {
			if pl[i].Knob == plan.OOMScoreAdj {
				got, only = pl[i].Value.String(), pl[i].Only
			}
		}
		if got != tc.want || only != tc.only {
			t.Errorf("%s: %q for those that have %+v, want %q, %+v", name, got, only, tc.want, tc.only)
		}
	}
}

// A request beyond the node counts as the node's share, and the reason says so.
func TestMemoryProtectionLimit(t *testing.T) {
	t.Parallel()
	v := pt.YAML(t, pt.View(), "resourceQOSStrategy: {beClass: {memoryQOS: {enable: true, minLimitPercent: 50, lowLimitPercent: 0}}}")
	v.Limits.MemoryNodePercent = 100
	for batch, want := range map[int64][2]string{
		1 << 50:    {"64424509440", "50% of request (class BE, capped by the node's memoryNodePercentMax)"},
		pt.GiB * 2: {"1073741824", "50% of request (class BE)"},
	} {
		p := pt.Pod(protocol.QoSBE)
		p.Ask.Extended, p.Ask.HasExtended = map[string]protocol.ExtendedContainer{"app": pt.Batch(500, batch)}, true
		pl, _ := container.Decide(v, p, pt.Container(p))
		pt.Want(t, pl, map[string]string{"memory.min": want[0]}, false)
		for i := range pl {
			if pl[i].Knob == plan.MemoryMin && pl[i].Reason != want[1] {
				t.Errorf("reason %q, want %q", pl[i].Reason, want[1])
			}
		}
	}
}
