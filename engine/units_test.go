// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/kernel/apply"
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
	want := []string{unitDir + " cpu.idle", unitDir + " memory.min", "/x.slice cpu.shares"}
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
	pl := q.take(unitDir)
	if len(pl) != 2 || pl.Get(plan.CPUQuota).Value != plan.Int(2000) {
		t.Fatalf("queued %v", pl)
	}
	for _, s := range pl {
		q.keep(s)
	}
	q.add(plan.Plan{low, period})
	if pl := q.take(unitDir); len(pl) != 0 {
		t.Errorf("set again: %v", pl)
	}
	// Quota and period are one property: the news of one brings the other.
	q.add(plan.Plan{quota, period})
	if pl := q.take(unitDir); len(pl) != 2 {
		t.Errorf("a new quota without its period: %v", pl)
	}
	// What is queued, or being told, does not come after what is wanted since.
	q.keep(low)
	q.add(plan.Plan{quota})
	q.add(plan.Plan{low})
	pl = q.take(unitDir)
	if len(pl) != 1 || pl[0].Value != low.Value {
		t.Errorf("wanted last %s, queued %v", low.Value, pl)
	}
	q.keep(low)
	q.add(plan.Plan{quota})
	if pl := q.take(unitDir); len(pl) != 1 {
		t.Errorf("queued %v", pl)
	}
	q.add(plan.Plan{low}) // systemd is at it
	q.keep(quota)
	if pl := q.take(unitDir); len(pl) != 1 || pl[0].Value != low.Value {
		t.Errorf("wanted while another value was told: %s, queued %v", low.Value, pl)
	}
	for name, f := range map[string]func(){
		"stale": func() { q.stale(low) }, "ended": func() { q.forget(unitDir) }, "another meaning": q.again,
	} {
		q.keep(low)
		q.keep(period)
		f()
		q.add(plan.Plan{low, period})
		if pl := q.take(unitDir); len(pl) != 2 {
			t.Errorf("%s: %v", name, pl)
		}
	}
}

// slow is a kernel whose systemd takes so long for the first units, as many as are told at a time, that something happens meanwhile.
type slow struct {
	wishes
	mu        sync.Mutex
	at        int
	meanwhile func()
	over      chan struct{}
	set       []string
}

// SyncUnits implements Kernel.
func (k *slow) SyncUnits(_ context.Context, p plan.Plan, _ uint64) []apply.Result {
	k.mu.Lock()
	out := make([]apply.Result, len(p))
	for i := range p {
		k.set = append(k.set, fmt.Sprintf("%s %s", p[i].Target.Cgroup, p[i].Value))
		out[i] = apply.Result{Setting: p[i], Outcome: apply.Written}
	}
	over := k.over
	if k.at++; k.at == unitWorkers {
		k.meanwhile()
		close(over)
	}
	k.mu.Unlock()
	<-over
	return out
}

// then is what happens when so many units are being told.
func (k *slow) then(meanwhile func()) { k.at, k.over, k.meanwhile = 0, make(chan struct{}), meanwhile }

// A value that was written while systemd was at another unit is not undone by the one that was queued before it; what the end of the
// program finds queued is the newest, too.
func TestNewerUnitValues(t *testing.T) {
	t.Parallel()
	g, _ := protector(t, nil, nil)
	k := &slow{}
	g.o.Kernel = k
	ctx, cancel := context.WithCancel(t.Context())
	value := func(dir string, n int64) { g.units.add(plan.Plan{unitSetting(dir, plan.MemoryMin, n)}) }
	var want []string
	round := func(first, last int64, meanwhile func()) {
		for i := range unitWorkers {
			value(fmt.Sprintf("/a%d.slice", i), first)
			want = append(want, fmt.Sprintf("/a%d.slice %d", i, first))
		}
		value("/b.slice", first)
		want = append(want, fmt.Sprintf("/b.slice %d", last))
		k.then(func() { value("/b.slice", last); meanwhile() })
		g.syncUnits(ctx)
	}
	round(1, 2, func() {})
	round(3, 4, cancel)
	if n := len(k.set); n != len(want)-1 {
		t.Errorf("%d units were told before the end, want all but one of %d", n, len(want))
	}
	g.syncUnits(t.Context())
	slices.Sort(k.set)
	slices.Sort(want)
	if diff := cmp.Diff(want, k.set); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// deaf is a systemd that does not answer once, on a machine where the cgroup may have gone.
type deaf struct {
	wishes
	gone  bool
	asked int
	set   plan.Plan
}

// Verify implements Kernel.
func (k *deaf) Verify(p plan.Plan) []apply.Mismatch {
	if k.gone {
		return []apply.Mismatch{{Setting: p[0], Err: apply.ErrGone}}
	}
	return nil
}

// SyncUnits implements Kernel.
func (k *deaf) SyncUnits(_ context.Context, p plan.Plan, _ uint64) []apply.Result {
	out := make([]apply.Result, len(p))
	k.asked++
	for i := range p {
		if out[i] = (apply.Result{Setting: p[i], Outcome: apply.Written}); k.asked == 1 {
			out[i].Outcome, out[i].Err = apply.Failed, errors.New("timeout")
			continue
		}
		k.set = append(k.set, p[i])
	}
	return out
}

// A unit that could not be told that a value is no longer wanted is told later: nobody writes or looks at that value again, and the
// next daemon-reload would bring it back. One that has ended is told no more.
func TestUnitIsToldAgain(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		g := halved(t)
		k := &deaf{gone: gone}
		g.o.Kernel = k
		g.units.add(plan.Plan{unitSetting(unitDir, plan.MemoryMin, 0)})
		g.syncUnits(t.Context())
		<-g.units.wake // that it was queued
		g.repairAll(t.Context(), true, true)
		<-g.units.wake
		g.syncUnits(t.Context())
		if s := k.set.Get(plan.MemoryMin); (s == nil) != gone || len(g.units.waiting()) > 0 {
			t.Errorf("gone %v: told %v, still to be told %q", gone, k.set, g.units.waiting())
		}
	}
}
