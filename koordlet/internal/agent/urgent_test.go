// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/psi"
	"github.com/koord-rt/koord-rt/koordlet/internal/collect"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Two pods that call before anybody answers are both answered: a pod that is dismissed must not hide another.
func TestNobodysCallIsLost(t *testing.T) {
	t.Parallel()
	u := newUrgency()
	for at, uid := range []string{"b", "a", "b"} {
		u.ask(uid, unit.Micros(at)*unit.Second)
	}
	if len(u.call) != 1 {
		t.Fatal("nobody is told")
	}
	called, since := u.take()
	if again, _ := u.take(); !slices.Equal(called, []string{"a", "b"}) || len(again) != 0 {
		t.Fatalf("%q", called)
	}
	if since["b"] != 0 || since["a"] != unit.Second {
		t.Errorf("since %v: a call counts from the first", since)
	}
	if both, one := first(called, since, 3*unit.Second), first([]string{"a"}, since, 3*unit.Second); both != 0 || one != unit.Second {
		t.Errorf("they wait since %d, and a alone since %d", both, one)
	}
	w := window.New(window.Options{})
	now := 100 * unit.Second
	members := []engine.Member{
		{Pod: &workload.Pod{UID: "a"}, Containers: []*workload.Container{{ID: "c1"}}}, {Pod: &workload.Pod{UID: "b"}},
	}
	h := newHearing(w, func(string) (float64, unit.Micros, bool) { return 0, 0, false })
	heard := func(called ...string) []string {
		waiting, late := h.sort(called, map[string]unit.Micros{"b": now - counted}, members, now)
		if len(late) != 0 {
			t.Errorf("put off: %q", late)
		}
		return waiting
	}
	stopped := func(of sample.Subject, micros float64) {
		w.Append([]sample.Sample{{Subject: of, Metric: sample.CPUThrottledTime, Value: micros, At: now - unit.Second/2}})
	}
	stopped(sample.OfContainer("c1"), 3e5)
	stopped(sample.OfPod("b"), 2e4) // one short stop says nothing
	if got := heard(called...); !slices.Equal(got, []string{"b"}) {
		t.Errorf("heard: %q", got)
	}
	members[1].Containers = []*workload.Container{{ID: "c2", Base: workload.Resources{Quota: unit.Some(50000)}}}
	if got := heard("b"); len(got) != 0 {
		t.Errorf("one with a limit that has just begun: %q", got)
	}
	w.Append([]sample.Sample{{Subject: sample.OfContainer("c2"), Metric: sample.CPUUsage, Value: 0.5, At: now - unit.Second/2}})
	if got := heard("b"); len(got) != 1 {
		t.Errorf("one with a limit that does not stop it: %q", got)
	}
	if got := heard("gone"); len(got) != 1 {
		t.Errorf("a pod that nobody knows yet: %q", got)
	}
}

func newHearing(w decide.Window, stopped func(string) (float64, unit.Micros, bool)) *hearing {
	return &hearing{
		state: &decide.State{}, window: w, interval: unit.Second, stopped: stopped,
		trigger: psi.Trigger{Stall: 50 * time.Millisecond, Window: 500 * time.Millisecond},
	}
}

// A trigger fires half a second after its pod's own limit began to stop it: no tick has told of that by then, and nobody gives way for it. What a stop that
// lasts will have taken is not counted before its end, so that who has a limit is asked again a period later; who has none is not.
func TestOwnLimitBetweenTicks(t *testing.T) {
	t.Parallel()
	const ms = unit.Millisecond
	quota := workload.Resources{Quota: unit.Some(50000)}
	for name, tc := range map[string]struct {
		every  unit.Micros // the interval, a second where none is told
		told   float64     // µs in a second of the last tick
		part   float64     // of its periods in which it was stopped, where known
		ticked unit.Micros // how long ago that was
		called unit.Micros // how long ago it called first
		grown  float64     // µs since the tick
		unread bool
		free   bool // without a limit
		want   string
	}{
		"stopped since the tick":                 {ticked: 400 * ms, grown: 6e4, want: "dismissed"},
		"a moment after the tick":                {ticked: 50 * ms, told: 1e5, want: "dismissed"},
		"a moment after the tick, seldom before": {ticked: 50 * ms, told: 6e4, called: counted, want: "heard"},
		"both sides of the tick":                 {ticked: 50 * ms, told: 5e4, grown: 3e4, called: counted, want: "dismissed"},
		"long before the tick":                   {ticked: 700 * ms, told: 6e5, called: counted, want: "heard"},
		"on many CPUs before the tick":           {ticked: 50 * ms, told: 4e6, part: 0.05, called: counted, want: "heard"},
		"in all periods before the tick":         {ticked: 50 * ms, told: 4e6, part: 1, called: counted, want: "dismissed"},
		"seldom in most of a second":             {ticked: 900 * ms, grown: 7e4, called: counted, want: "heard"},
		"often in most of a second":              {ticked: 900 * ms, grown: 9e4, want: "dismissed"},
		"seldom in 5 s of 10":                    {every: 10 * unit.Second, ticked: 5 * unit.Second, grown: 6e4, called: counted, want: "heard"},
		"often in 5 s of 10":                     {every: 10 * unit.Second, ticked: 5 * unit.Second, grown: 5e5, want: "dismissed"},
		"seldom in the 10 s before":              {every: 10 * unit.Second, ticked: 100 * ms, told: 1.2e4, called: counted, want: "heard"},
		"often in the 10 s before":               {every: 10 * unit.Second, ticked: 100 * ms, told: 1.2e5, want: "dismissed"},
		"nothing counted yet":                    {ticked: 400 * ms, want: "late"},
		"little counted yet":                     {ticked: 400 * ms, grown: 2e4, called: counted - 1, want: "late"},
		"a period later":                         {ticked: 400 * ms, called: counted, want: "heard"},
		"a period later, counted":                {ticked: 400 * ms, grown: 6e4, called: counted, want: "dismissed"},
		"a period later, not for long":           {ticked: 400 * ms, grown: 4e4, called: counted, want: "heard"},
		"of another clock":                       {ticked: 400 * ms, called: -unit.Minute, want: "heard"},
		"not to be read":                         {ticked: 400 * ms, unread: true, want: "late"},
		"not to be read, a period later":         {ticked: 400 * ms, unread: true, called: counted, want: "heard"},
		"not to be read, stopped before":         {ticked: 400 * ms, unread: true, told: 1e5, want: "dismissed"},
		"without a limit":                        {ticked: 400 * ms, free: true, grown: 9e9, want: "heard"},
		"without a limit that is known, stopped": {ticked: 400 * ms, free: true, told: 1e5, want: "dismissed"},
	} {
		w := window.New(window.Options{})
		now := 100 * unit.Second
		w.Append([]sample.Sample{
			{Subject: sample.OfContainer("c"), Metric: sample.CPUUsage, Value: 0.5, At: now - tc.ticked - unit.Second},
			{Subject: sample.OfContainer("c"), Metric: sample.CPUUsage, Value: 0.5, At: now - tc.ticked},
		})
		if tc.told > 0 {
			w.Append([]sample.Sample{{Subject: sample.OfContainer("c"), Metric: sample.CPUThrottledTime, Value: tc.told, At: now - tc.ticked}})
		}
		if tc.part > 0 {
			w.Append([]sample.Sample{{Subject: sample.OfContainer("c"), Metric: sample.CPUThrottled, Value: tc.part, At: now - tc.ticked}})
		}
		m := engine.Member{Pod: &workload.Pod{UID: "web"}, Containers: []*workload.Container{{ID: "c"}}}
		if !tc.free {
			m.Containers[0].Base = quota
		}
		h := newHearing(w, func(string) (float64, unit.Micros, bool) { return tc.grown, now - tc.ticked, !tc.unread })
		if tc.every > 0 {
			h.interval = tc.every
		}
		waiting, late := h.sort([]string{"web"}, map[string]unit.Micros{"web": now - tc.called}, []engine.Member{m}, now)
		got := "dismissed"
		switch {
		case len(waiting) > 0:
			got = "heard"
		case len(late) > 0:
			got = "late"
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// Who is put off still waits since his first call, and is asked again when a period has passed since that, though nobody calls. Who calls meanwhile is
// answered at once.
func TestPutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u, begun := newUrgency(), time.Now()
		now := func() unit.Micros { return unit.Second + unit.Micros(time.Since(begun).Microseconds()) }
		u.ask("late", now())
		<-u.call
		time.Sleep(30 * time.Millisecond)
		_, since := u.take()
		u.putOff([]string{"late"}, since, now())
		synctest.Wait()
		if len(u.call) != 0 {
			t.Fatal("asked again at once")
		}
		u.ask("late", now())
		<-u.call
		_, since = u.take()
		if since["late"] != unit.Second {
			t.Errorf("it waits since %d", since["late"])
		}
		u.putOff([]string{"late"}, since, now())
		u.putOff(nil, nil, now())
		<-u.call
		if now() != unit.Second+counted {
			t.Errorf("asked again after %d", now()-unit.Second)
		}
		if called, _ := u.take(); !slices.Equal(called, []string{"late"}) {
			t.Errorf("asked again: %q", called)
		}
	})
}

// A pod with a limit that calls is asked again by the agent itself a period later, though it does not call again: its call is not lost. By then its limit has
// stopped it, and nobody gives way for it.
func TestAnswerPutsOff(t *testing.T) {
	t.Parallel()
	const dir = "/kubepods/burstable/podu"
	m := enginetest.New(t, "6.12", dir)
	g := engine.New(m.Options(t, config.Default().Node, unmarked{}, "{}"))
	quota := workload.Resources{Quota: unit.Some(50000)}
	pod := &workload.Pod{
		ID: "s", UID: "web", Namespace: "default", Name: "web", KubeQoS: protocol.KubeBurstable, Cgroup: dir, QoSCgroup: "/kubepods/burstable", Base: quota,
	}
	g.Decide(engine.Sandbox{ID: pod.ID, Read: func() *workload.Pod { return pod }}, &workload.Container{ID: "c", Cgroup: dir + "/c", Base: quota})
	if members := g.Members(); len(members) != 1 || members[0].Pod.UID != "web" {
		t.Fatalf("members: %+v", members)
	}
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		w := window.New(window.Options{})
		stopped := func(metric sample.Metric, value float64) {
			w.Append([]sample.Sample{{Subject: sample.OfPod("web"), Metric: metric, Value: value, At: 100*unit.Second - 1}})
		}
		stopped(sample.CPUUsage, 0.5)
		a := New(Options{
			Interval: time.Second, Engine: g, Scanner: &collect.Scanner{}, Window: w,
			Pressure: &Pressure{trigger: psi.Trigger{Stall: 50 * time.Millisecond, Window: 500 * time.Millisecond}},
			Now:      func() unit.Micros { return 100*unit.Second + unit.Micros(time.Since(begun).Microseconds()) },
		})
		a.Urgent("web")
		<-a.urgent.call
		a.answer(t.Context())
		if a.doubt != 0 || a.urgent.answered != 0 {
			t.Errorf("judged at once: doubt %d, answered at %d", a.doubt, a.urgent.answered)
		}
		select {
		case <-a.urgent.call:
		case <-time.After(time.Second):
			t.Fatal("its call is lost")
		}
		if after := time.Since(begun); after != 100*time.Millisecond {
			t.Errorf("asked again after %v", after)
		}
		stopped(sample.CPUThrottledTime, 3e5)
		a.answer(t.Context())
		synctest.Wait()
		if called, _ := a.urgent.take(); len(called) != 0 || a.doubt != doubtTicks || a.urgent.answered != 0 {
			t.Errorf("still waiting: %q, doubt %d, answered at %d", called, a.doubt, a.urgent.answered)
		}
	})
}

// unmarked is an edge that leaves no mark.
type unmarked struct{}

func (unmarked) Mark(*node.View, plan.Plan, *workload.Container) *protocol.Applied { return nil }

// Between two urgent steps lies a pause, whatever is called; the clock of another boot does not lengthen it.
func TestUrgentPause(t *testing.T) {
	t.Parallel()
	u := newUrgency()
	u.answered = 10 * unit.Second
	for now, want := range map[unit.Micros]unit.Micros{
		10 * unit.Second: urgentPause, 10*unit.Second + urgentPause/4: urgentPause * 3 / 4, 10*unit.Second + urgentPause: 0, 11 * unit.Second: 0, unit.Second: 0,
	} {
		if got := u.wait(now); got != want {
			t.Errorf("at %d: %d, want %d", now, got, want)
		}
	}
}
