// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/drift"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// matching is a kernel that attributes by equal numbers and does not know systemd.
type matching struct{ wishes }

// Sources implements Kernel.
func (*matching) Sources(_ context.Context, strays []apply.Stray) (out []drift.Source) {
	for i := range strays {
		out = append(out, drift.Attribute(strays[i].Found, strays[i].Claims, func(a, b plan.Value) bool { return a == b }))
	}
	return out
}

// shelf is a journal in memory.
type shelf struct{ list []journal.Record }

// Append implements journal.Journal.
func (b *shelf) Append(records ...journal.Record) error {
	b.list = append(b.list, records...)
	return nil
}

func (b *shelf) sources() (out []string) {
	for i := range b.list {
		out = append(out, b.list[i].Source)
	}
	return out
}

// TestClaims: what the runtime would write to a container is what was asked for and what the specification has of ours; of a
// pod's cgroup, it is the kubelet's request. Another container's claims are nobody's here, and a directory's are not known.
func TestClaims(t *testing.T) {
	t.Parallel()
	g, _ := bursting(t)
	g.o.Kernel = &matching{}
	g.reg.putPod(podEntry{p: &workload.Pod{ID: "s", Cgroup: "/kubepods/podu", Base: workload.Resources{Quota: unit.Some(150000), Shares: unit.Some(2)}}})
	mark := &stamp{made: &protocol.Applied{Set: map[string]string{"cpu.quota": "70000 batch"}}}
	g.reg.set(entry{sandbox: "s", mark: mark, c: &workload.Container{ID: "c", Base: workload.Resources{
		Quota: unit.Some(100000), CPUs: "0-3", Unified: map[string]string{"memory.high": "max"},
	}}})
	container := plan.Target{Level: plan.LevelContainer, Container: "c", Cgroup: "/kubepods/podu/c"}
	pod := plan.Target{Level: plan.LevelPod, Cgroup: "/kubepods/podu"}
	for _, c := range []struct {
		target plan.Target
		knob   plan.Knob
		found  plan.Value
		want   string
	}{
		{container, plan.CPUQuota, plan.Int(100000), "runtime"}, {container, plan.CPUQuota, plan.Int(70000), "runtime"},
		{container, plan.CPUQuota, plan.Int(60000), "someone"}, {container, plan.MemoryHigh, plan.Int(-1), "runtime"},
		{container, plan.CPUSetCPUs, plan.Text("0-3"), "runtime"}, {container, plan.CPUShares, plan.Int(2), "someone"},
		{pod, plan.CPUQuota, plan.Int(150000), "kubelet"}, {pod, plan.CPUShares, plan.Int(2), "kubelet"}, {pod, plan.CPUQuota, plan.Int(100000), "someone"},
		{plan.Target{Level: plan.LevelContainer, Container: "gone"}, plan.CPUQuota, plan.Int(100000), "someone"},
		{plan.Target{Level: plan.LevelQoS, Cgroup: "/kubepods"}, plan.CPUQuota, plan.Int(150000), "someone"},
	} {
		s := plan.Setting{Target: c.target, Knob: c.knob, Value: plan.Int(1)}
		book := &shelf{}
		g.o.Journal = book
		g.Attribute(t.Context(), []apply.Result{{Setting: s, Before: c.found}, {Setting: s, Before: c.found, Strayed: true}})
		if got := book.sources(); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s of %s found %s: %q, want %s once", c.knob, c.target, c.found, got, c.want)
		}
	}
}

// TestHearsay: koordlet hears of a resize after the kubelet has written it. What nobody's claim explains waits for that, and then the pod's new limit
// names the kubelet; what is not explained in time is someone's. What no request carries waits for nothing, nor does who is told of updates.
func TestHearsay(t *testing.T) {
	t.Parallel()
	pod := plan.Target{Level: plan.LevelPod, Cgroup: "/kubepods/podu"}
	stray := func(k plan.Knob) []apply.Result {
		return []apply.Result{{Setting: plan.Setting{Target: pod, Knob: k, Value: plan.Int(-1)}, Before: plan.Int(150000), Strayed: true}}
	}
	for name, c := range map[string]struct {
		knob  plan.Knob
		at    plan.Level // default a pod
		told  bool       // of updates
		hears int64      // the quota that is heard of
		want  string
		waits bool
	}{
		"heard of":            {knob: plan.CPUQuota, hears: 150000, want: "kubelet", waits: true},
		"another heard of":    {knob: plan.CPUQuota, hears: 120000, want: "someone", waits: true},
		"of another knob":     {knob: plan.CPUShares, hears: 150000, want: "someone", waits: true},
		"in no request":       {knob: plan.CPUBurst, hears: 150000, want: "someone"},
		"updates are told of": {knob: plan.CPUQuota, hears: 150000, told: true, want: "someone"},
		"of no pod":           {knob: plan.CPUQuota, at: plan.LevelQoS, hears: 150000, want: "someone"},
	} {
		for _, ends := range []bool{false, true} {
			now := time.Unix(1e9, 0)
			g, _ := bursting(t)
			book := &shelf{}
			g.o.Kernel, g.o.Journal, g.o.UpdatesUntold, g.o.Now = &matching{}, book, !c.told, func() time.Time { return now }
			compare := func(when string, want ...string) {
				t.Helper()
				if got := book.sources(); !slices.Equal(got, want) {
					t.Errorf("%s, %s: %q, want %q", name, when, got, want)
				}
			}
			g.reg.putPod(podEntry{p: &workload.Pod{ID: "s", Cgroup: pod.Cgroup, Base: workload.Resources{Quota: unit.Some(100000)}}})
			found := stray(c.knob)
			if c.at != 0 {
				found[0].Setting.Target.Level = c.at
			}
			g.Attribute(t.Context(), found)
			early := []string{c.want}
			if c.waits {
				early = nil
			}
			compare("at once", early...)
			g.reg.putPod(podEntry{p: &workload.Pod{ID: "s", Cgroup: pod.Cgroup, Base: workload.Resources{Quota: unit.Some(c.hears)}}})
			now = now.Add(hearsay - time.Second)
			g.hear(t.Context(), ends)
			if !ends {
				compare("a second before the time is over", early...)
				now = now.Add(time.Second)
				g.hear(t.Context(), false)
			}
			compare("when it is over", c.want)
			g.hear(t.Context(), true)
			compare("later", c.want)
		}
	}
}

// TestHearsayInTime: the engine looks again by itself when the time is over, and tells of all that waits when it ends.
func TestHearsayInTime(t *testing.T) {
	t.Parallel()
	pod := plan.Target{Level: plan.LevelPod, Cgroup: "/kubepods/podu"}
	stray := []apply.Result{{Setting: plan.Setting{Target: pod, Knob: plan.CPUQuota, Value: plan.Int(-1)}, Before: plan.Int(150000), Strayed: true}}
	for name, c := range map[string]struct {
		lives time.Duration
	}{"in time": {hearsay + time.Second}, "at the end": {hearsay / 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, _ := bursting(t)
				book := &shelf{}
				g.o.Kernel, g.o.Journal, g.o.UpdatesUntold = &matching{}, book, true
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- g.Run(ctx, func(ctx context.Context) { <-ctx.Done() }) }()
				synctest.Wait()
				g.drifted.add(stray)
				g.units.rouse()
				time.Sleep(time.Second)
				synctest.Wait()
				if got := book.sources(); len(got) > 0 {
					t.Errorf("told at once: %q", got)
				}
				g.reg.putPod(podEntry{p: &workload.Pod{ID: "s", Cgroup: pod.Cgroup, Base: workload.Resources{Quota: unit.Some(150000)}}})
				time.Sleep(c.lives)
				synctest.Wait()
				if got := book.sources(); (len(got) == 1) != (c.lives > hearsay) {
					t.Errorf("told after %s: %q", c.lives, got)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if got := book.sources(); !slices.Equal(got, []string{"kubelet"}) {
					t.Errorf("told in the end: %q, want kubelet once", got)
				}
			})
		})
	}
}
