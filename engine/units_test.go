// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/model/plan"
)

const unitDir = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice"

func unitSetting(dir string, k plan.Knob, n int64) plan.Setting {
	return plan.Setting{Target: plan.Target{Level: plan.LevelPod, Cgroup: dir}, Knob: k, Value: plan.Int(n)}
}

// The queue takes what systemd has a property for, of cgroups that are units, and no weight of an idle one.
func TestUnitSettings(t *testing.T) {
	t.Parallel()
	observed := unitSetting(unitDir, plan.MemoryLow, 1)
	observed.Observe = true
	got := unitSettings(plan.Plan{
		unitSetting(unitDir, plan.CPUShares, 2), unitSetting(unitDir, plan.CPUIdle, 1), unitSetting(unitDir, plan.MemoryMin, 1), observed,
		unitSetting(unitDir, plan.CPUBurst, 1), unitSetting("/kubepods/pod1", plan.MemoryMin, 1), unitSetting("/x.slice", plan.CPUShares, 2),
		{Target: groupTarget("x.slice"), Knob: plan.RDTSchemata, Value: plan.Text("f")},
	})
	want := []string{unitDir + " memory.min", "/x.slice cpu.shares"}
	var have []string
	for _, s := range got {
		have = append(have, s.Target.Cgroup+" "+s.Knob.String())
	}
	if !slices.Equal(have, want) {
		t.Errorf("got %v, want %v", have, want)
	}
}

// What is written to a unit in a row is one call with the latest values; what has been set is not set again, unless the
// kernel had another value or the unit has ended.
func TestUnitQueue(t *testing.T) {
	t.Parallel()
	q := newUnitQueue()
	quota, period, low := unitSetting(unitDir, plan.CPUQuota, 1000), unitSetting(unitDir, plan.CPUPeriod, 100000), unitSetting(unitDir, plan.CPUQuota, 2000)
	q.add(plan.Plan{quota, period})
	q.add(plan.Plan{low})
	pl := q.take()
	if len(pl) != 2 || pl.Get(plan.CPUQuota).Value != plan.Int(2000) {
		t.Fatalf("queued %v", pl)
	}
	for _, s := range pl {
		q.keep(s)
	}
	q.add(plan.Plan{low, period})
	if pl := q.take(); len(pl) != 0 {
		t.Errorf("set again: %v", pl)
	}
	// Quota and period are one property: the news of one brings the other.
	q.add(plan.Plan{quota, period})
	if pl := q.take(); len(pl) != 2 {
		t.Errorf("a new quota without its period: %v", pl)
	}
	for name, f := range map[string]func(){
		"stale": func() { q.stale(low) }, "ended": func() { q.forget(unitDir) }, "another meaning": q.again,
	} {
		q.keep(low)
		q.keep(period)
		f()
		q.add(plan.Plan{low, period})
		if pl := q.take(); len(pl) != 2 {
			t.Errorf("%s: %v", name, pl)
		}
	}
}
