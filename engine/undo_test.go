// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Every knob of a cgroup or a process can be taken back; what stands in the specification alone cannot, and a monitoring
// group is removed. What is the whole node's is no pod's.
func TestUndoKnowsEveryKnob(t *testing.T) {
	t.Parallel()
	v := &node.View{Topology: &topo.Topology{}}
	base := workload.Resources{CPUs: "0-1", Mems: "0", OOMScoreAdj: unit.Some(5)}
	never := plan.KnobSet(plan.RDTMonGroup, plan.RDTSchemata, plan.Env, plan.Device, plan.CDIDevice, plan.Mount, plan.VMMinFree, plan.VMWatermarkScale, plan.IOCostQoS, plan.IOCostModel, plan.NetShape)
	for k := plan.KnobNone + 1; k < plan.NumKnobs; k++ {
		if _, ok := widest(v, k, &base); ok == never.Has(k) {
			t.Errorf("%s: can be taken back is %v", k, ok)
		}
	}
}

// A quota that comes back is of the kubelet's period: systemd has given the cgroup that of 100 ms while it had none.
func TestUndoOfAQuotaBringsItsPeriod(t *testing.T) {
	t.Parallel()
	quota := func(v int64) plan.Setting { return plan.Setting{Knob: plan.CPUQuota, Value: plan.Int(v)} }
	period := plan.Setting{Knob: plan.CPUPeriod, Value: plan.Int(10000)}
	for name, c := range map[string]struct {
		old  plan.Plan
		base workload.Resources
		want []string
	}{
		"it owned its CPUs":          {plan.Plan{quota(-1)}, workload.Resources{Quota: unit.Some(40000), Period: unit.Some(10000)}, []string{"cpu.quota=40000", "cpu.period=10000"}},
		"planned with it":            {plan.Plan{quota(24000), period}, workload.Resources{Quota: unit.Some(20000), Period: unit.Some(10000)}, []string{"cpu.quota=20000", "cpu.period=10000"}},
		"everybody's":                {plan.Plan{quota(-1)}, workload.Resources{Quota: unit.Some(40000), Period: unit.Some(100000)}, []string{"cpu.quota=40000"}},
		"of which nobody has told":   {plan.Plan{quota(-1)}, workload.Resources{Quota: unit.Some(40000)}, []string{"cpu.quota=40000"}},
		"it has none without us too": {plan.Plan{quota(15000)}, workload.Resources{Period: unit.Some(10000)}, []string{"cpu.quota=-1"}},
	} {
		var got []string
		for _, s := range withUndo(&node.View{Topology: &topo.Topology{}}, c.old, nil, c.base) {
			got = append(got, s.Knob.String()+"="+s.Value.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Only the processes that have our OOM score are given back the one that the container began with.
func TestUndoOfAnOOMScore(t *testing.T) {
	t.Parallel()
	old := plan.Plan{{Knob: plan.OOMScoreAdj, Value: plan.Int(943), Only: unit.Some(985)}}
	out := withUndo(&node.View{Topology: &topo.Topology{}}, old, nil, workload.Resources{OOMScoreAdj: unit.Some(985)})
	if len(out) != 1 || out[0].Value != plan.Int(985) || out[0].Only != unit.Some(943) {
		t.Errorf("%+v", out)
	}
}

// Where a runtime tells of no OOM score, the process's own is not taken for the container's while it is ours; after it has been given back it is.
func TestOOMScoreOfAnEarlierLife(t *testing.T) {
	t.Parallel()
	write := func(want, original string) journal.Record {
		return journal.Record{
			Target: plan.Target{Level: plan.LevelContainer, Container: "c"}, Knob: plan.OOMScoreAdj.String(), Want: want, Original: []string{original},
			Owner: "oom-score", Via: journal.ViaDirect,
		}
	}
	given, more, back := write("938", "985"), write("930", "938"), write("985", "930")
	part, none := given, given
	part.Err, part.Written = "one process refused", []string{"938"}
	none.Err = "refused"
	for _, c := range []struct {
		records    []journal.Record
		have, want int64
	}{
		{nil, 938, 938},
		{[]journal.Record{given}, 938, 985},
		{[]journal.Record{part}, 938, 985}, // all that compaction keeps of a write that some processes have taken
		{[]journal.Record{none}, 938, 938},
		{[]journal.Record{given, more}, 930, 985},
		{[]journal.Record{given, more, back}, 985, 985},
		{[]journal.Record{given, more, back}, 930, 930},
		{[]journal.Record{given}, 700, 700}, // somebody else's
		{[]journal.Record{given, {Target: given.Target, Via: journal.ViaGone}}, 938, 938},
	} {
		base := workload.Resources{OOMScoreAdj: unit.Some(c.have)}
		mark.Rebase(&base, NewPast(c.records).scored("c")...)
		if base.OOMScoreAdj != unit.Some(c.want) {
			t.Errorf("%d beside %d records: %+v, want %d", c.have, len(c.records), base.OOMScoreAdj, c.want)
		}
	}
}

// What the kubelet or the runtime has asked for by a unified key comes back, else the kernel's default.
func TestUndoToWhatWasAsked(t *testing.T) {
	t.Parallel()
	v := &node.View{Topology: &topo.Topology{}}
	asked := workload.Resources{Unified: map[string]string{
		"memory.min": "4096", "memory.high": "max", "memory.oom.group": "1", "memory.low": "nonsense", "cpu.idle": "max",
	}}
	for k, want := range map[plan.Knob][2]plan.Value{
		plan.MemoryMin:        {plan.Int(4096), plan.Int(0)},
		plan.MemoryHigh:       {plan.Int(-1), plan.Int(-1)},
		plan.MemoryOOMGroup:   {plan.Int(1), plan.Int(0)},
		plan.MemoryLow:        {plan.Int(0), plan.Int(0)},
		plan.CPUIdle:          {plan.Int(0), plan.Int(0)},
		plan.MemoryWmarkScale: {plan.Int(50), plan.Int(50)},
		plan.PageCacheSize:    {plan.Int(0), plan.Int(0)},
		plan.CoreSchedCookie:  {plan.Text(""), plan.Text("")},
	} {
		if got, ok := widest(v, k, &asked); !ok || got != want[0] {
			t.Errorf("%s beside what was asked: %v, %v; want %v", k, got, ok, want[0])
		}
		if got, ok := widest(v, k, &workload.Resources{}); !ok || got != want[1] {
			t.Errorf("%s: %v, %v; want %v", k, got, ok, want[1])
		}
	}
}
