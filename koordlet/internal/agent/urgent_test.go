// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/psi"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
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
		told   float64     // µs of the second before the last tick
		ticked unit.Micros // how long ago that was
		called unit.Micros // how long ago it called first
		grown  float64     // µs since the tick
		unread bool
		free   bool // without a limit
		want   string
	}{
		"stopped since the tick":                 {ticked: 400 * ms, grown: 6e4, want: "dismissed"},
		"a moment after the tick":                {ticked: 50 * ms, told: 6e4, want: "dismissed"},
		"both sides of the tick":                 {ticked: 50 * ms, told: 3e4, grown: 3e4, called: counted, want: "dismissed"},
		"long before the tick":                   {ticked: 700 * ms, told: 6e4, called: counted, want: "heard"},
		"nothing counted yet":                    {ticked: 400 * ms, want: "late"},
		"little counted yet":                     {ticked: 400 * ms, grown: 2e4, called: counted - 1, want: "late"},
		"a period later":                         {ticked: 400 * ms, called: counted, want: "heard"},
		"a period later, counted":                {ticked: 400 * ms, grown: 6e4, called: counted, want: "dismissed"},
		"a period later, not for long":           {ticked: 400 * ms, grown: 4e4, called: counted, want: "heard"},
		"of another clock":                       {ticked: 400 * ms, called: -unit.Minute, want: "heard"},
		"not to be read":                         {ticked: 400 * ms, unread: true, want: "late"},
		"not to be read, a period later":         {ticked: 400 * ms, unread: true, called: counted, want: "heard"},
		"not to be read, stopped before":         {ticked: 400 * ms, unread: true, told: 6e4, want: "dismissed"},
		"without a limit":                        {ticked: 400 * ms, free: true, grown: 9e9, want: "heard"},
		"without a limit that is known, stopped": {ticked: 400 * ms, free: true, told: 6e4, want: "dismissed"},
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
		m := engine.Member{Pod: &workload.Pod{UID: "web"}, Containers: []*workload.Container{{ID: "c"}}}
		if !tc.free {
			m.Containers[0].Base = quota
		}
		h := newHearing(w, func(string) (float64, unit.Micros, bool) { return tc.grown, now - tc.ticked, !tc.unread })
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
