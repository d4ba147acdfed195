// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// runtime answers with one container, or with an error.
type runtime struct {
	mu    sync.Mutex
	pod   *workload.Pod
	base  workload.Resources
	err   error
	asked int
}

func (r *runtime) Container(_ context.Context, id string, _ ...*protocol.Applied) (*workload.Pod, *workload.Container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	c := container()
	c.ID, c.State, c.Base = id, workload.StateRunning, r.base
	return r.pod, c, r.err
}

func (r *runtime) set(quota int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.base.Quota, r.err = unit.Some(quota), err
}

func (r *runtime) calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// An update that no event told of becomes the container's new base instead of being undone; what a human has written is
// undone; while the runtime does not say which of them it was, the value stays.
func TestUntoldUpdate(t *testing.T) {
	t.Parallel()
	rt := &runtime{base: container().Base}
	r := newRig(t, 0, func(o *engine.Options) { o.List, o.Drift, o.UpdatesUntold = rt, 10*time.Millisecond, true })
	sb := r.pod(t, nil)
	rt.pod = sb.Read()
	const dir = "/kubepods/burstable/podu/new"
	r.tree.Mkdir(t, dir)
	r.tree.Set(t, dir, "cpu.max", "200000 100000")
	c := container()
	c.ID, c.State = "c1", workload.StateRunning
	r.Add([]*workload.Pod{rt.pod}, []engine.Listed{{Sandbox: "s", Arrival: engine.Arrival{ID: "c1",
		Read: func(...*protocol.Applied) *workload.Container { return c }}}})
	r.Views().SetHandoff(handoff.Snapshot{DynamicGeneration: 1, Dynamic: node.Dynamic{
		Known: true, Expires: time.Now().Add(time.Hour), Quotas: map[string]node.QuotaLoop{"u": {Cap: 1000}},
	}})
	r.Repair()
	holds := func(what, want string) {
		t.Helper()
		enginetest.Eventually(t, what+": cpu.max "+want, func() bool {
			got := r.tree.Get(t, dir, "cpu.max")
			if got != want {
				t.Logf("%s: cpu.max is %s", what, got)
			}
			return got == want
		})
	}
	holds("capped", "100000 100000")
	base := func() int64 {
		_, c, _ := r.Known("c1")
		return c.Base.Quota.V
	}

	rt.set(50000, nil) // the kubelet resizes it downwards: below the cap
	r.tree.Set(t, dir, "cpu.max", "50000 100000")
	enginetest.Eventually(t, "the new base", func() bool { return base() == 50000 })
	holds("resized", "50000 100000")

	rt.set(300000, nil) // and upwards
	r.tree.Set(t, dir, "cpu.max", "300000 100000")
	enginetest.Eventually(t, "the newest base", func() bool { return base() == 300000 })
	holds("resized and capped", "100000 100000")

	rt.set(300000, errors.New("away"))
	asked := rt.calls()
	enginetest.Eventually(t, "two passes", func() bool {
		if r.tree.Get(t, dir, "cpu.max") != "70000 100000" { // what the last update had queued has come
			r.tree.Set(t, dir, "cpu.max", "70000 100000")
			asked = rt.calls()
		}
		return rt.calls() > asked+2
	})
	if diff := cmp.Diff("70000 100000", r.tree.Get(t, dir, "cpu.max")); diff != "" {
		t.Errorf("undone although nobody knows whose it is: %s", diff)
	}
	// A pass may have met a resize before it had asked for it, or not, and what the last update had queued the human's hand. What was met
	// is told a moment later, by what is asked for then: of the first of two resizes in a row it may no longer be known whose it was.
	const human = "70000 someone"
	told := func() (met int, others []string) {
		for _, s := range sources(r.book, "c1", "cpu.quota") {
			switch {
			case s == human:
				met++
			case !strings.HasSuffix(s, " runtime") && s != "50000 someone":
				others = append(others, s)
			}
		}
		return met, others
	}
	before, _ := told()
	rt.set(300000, nil)
	holds("a human's hand", "100000 100000")
	enginetest.Eventually(t, "who it was", func() bool { met, _ := told(); return met > before })
	if _, others := told(); len(others) > 0 {
		t.Errorf("drift of others: %q", others)
	}
	if n := plan.CPUQuota; len(r.book.Of("c1", n.String())) == 0 {
		t.Error("nothing in the journal")
	}
}

// sources are what was found of a container's knob by drift, and whose it was.
func sources(book *enginetest.Journal, container, knob string) (out []string) {
	for _, r := range book.Of(container, knob) {
		if r.Via == journal.ViaDrift {
			out = append(out, r.Found+" "+r.Source)
		}
	}
	return out
}
