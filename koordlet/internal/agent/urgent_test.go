// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/engine"
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
	var s decide.State
	stopped := func(of sample.Subject, micros float64) {
		w.Append([]sample.Sample{{Subject: of, Metric: sample.CPUThrottledTime, Value: micros, At: now - unit.Second/2}})
	}
	stopped(sample.OfContainer("c1"), 3e5)
	stopped(sample.OfPod("b"), 2e4) // one short stop says nothing
	if got := heard(&s, slices.Clone(called), members, w, now-2*unit.Second, now); !slices.Equal(got, []string{"b"}) {
		t.Errorf("heard: %q", got)
	}
	members[1].Containers = []*workload.Container{{ID: "c2", Base: workload.Resources{Quota: unit.Some(50000)}}}
	if got := heard(&s, []string{"b"}, members, w, now-2*unit.Second, now); len(got) != 0 {
		t.Errorf("one with a limit that has just begun: %q", got)
	}
	w.Append([]sample.Sample{{Subject: sample.OfContainer("c2"), Metric: sample.CPUUsage, Value: 0.5, At: now - unit.Second/2}})
	if got := heard(&s, []string{"b"}, members, w, now-2*unit.Second, now); len(got) != 1 {
		t.Errorf("one with a limit that does not stop it: %q", got)
	}
	if got := heard(&s, []string{"gone"}, members, w, now-2*unit.Second, now); len(got) != 1 {
		t.Errorf("a pod that nobody knows yet: %q", got)
	}
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
