// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockerproxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// leave makes a call whose client goes while the daemon is at it; the daemon goes on.
func (r *rig) leave(method, path string) {
	r.t.Helper()
	entered, gate, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	f := func() { close(entered); <-gate }
	r.before.Store(&f)
	ctx, cancel := context.WithCancel(r.t.Context())
	go func() {
		defer close(gone)
		r.try(ctx, method, path)
	}()
	<-entered
	r.before.Store(nil)
	cancel()
	<-gone
	close(gate)
}

// A start whose client has gone is done by the daemon all the same: the container gets what its body could not carry, and
// one whose guarantee does not hold is ended.
func TestStartThatTheClientLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pod := r.pod("LS", nil)
	id := r.id(r.do("POST", "/containers/create", body(pod)))
	r.leave(http.MethodPost, "/containers/"+id+"/start")
	enginetest.Eventually(t, "the start", func() bool { return r.ran(id) })
	enginetest.Eventually(t, "the burst", func() bool { return r.tree.Get(t, parent+"/"+id, "cpu.max.burst") == "100000" })

	r.mu.Lock()
	r.careless = true // the daemon forgets the quota
	r.mu.Unlock()
	strict := r.pod("BE", map[string]string{
		protocol.AnnotationRequired:                  "batch",
		"node.koordinator.sh/extended-resource-spec": `{"containers":{"app":{"limits":{"kubernetes.io/batch-cpu":"500"},"requests":{"kubernetes.io/batch-cpu":"500"}}}}`,
	})
	in := body(strict)
	in["HostConfig"] = map[string]any{"CgroupParent": parent, "CpuShares": 2}
	id = r.id(r.do("POST", "/containers/create", in))
	r.leave(http.MethodPost, "/containers/"+id+"/start")
	enginetest.Eventually(t, "the end of a container without its guarantee", func() bool { return r.asked("POST /containers/"+id+"/stop?t=0") == 1 })
}

// A start that the daemon finds done was ours to follow if we have not heard of it.
func TestStartThatWasDoneBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pod := r.pod("LS", nil)
	id := r.id(r.do("POST", "/containers/create", body(pod)))
	r.mu.Lock()
	r.one(httptest.NewRecorder(), id, "start", nil) // behind our back
	r.mu.Unlock()
	if status, _ := r.call("POST", "/containers/"+id+"/start", nil); status != http.StatusNotModified {
		t.Fatalf("the second start: %d", status)
	}
	if got := r.tree.Get(t, parent+"/"+id, "cpu.max.burst"); got != "100000" {
		t.Errorf("burst after the second start: %s", got)
	}
	r.tree.Set(t, parent+"/"+id, "cpu.max.burst", "0")
	r.call("POST", "/containers/"+id+"/start", nil)
	if got := r.tree.Get(t, parent+"/"+id, "cpu.max.burst"); got != "0" {
		t.Errorf("a start that changes nothing wrote a burst of %s", got)
	}
}

// What a signal has become of is not known where the daemon's record cannot be read: then nothing is released that may be in use. A stop
// says itself what it has done.
func TestSignalWithoutARecord(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pod := r.pod("LS", nil)
	id := r.id(r.do("POST", "/containers/create", body(pod)))
	r.do("POST", "/containers/"+id+"/start", nil)
	for _, of := range []string{id, pod} {
		r.mu.Lock()
		r.deaf, r.sick = of, of
		r.mu.Unlock()
		r.do("POST", "/containers/"+of+"/kill?signal=SIGHUP", nil)
		if !r.ran(id) {
			t.Fatalf("a signal to %s has ended the container, which runs", of)
		}
	}
	r.do("POST", "/containers/"+pod+"/stop", nil)
	if r.ran(id) {
		t.Error("its sandbox was stopped, and it runs")
	}
	id = r.id(r.do("POST", "/containers/create", body(r.pod("LS", nil))))
	r.do("POST", "/containers/"+id+"/start", nil)
	r.mu.Lock()
	r.sick = id
	r.mu.Unlock()
	r.do("POST", "/containers/"+id+"/stop", nil)
	if r.ran(id) {
		t.Error("it was stopped, and runs")
	}
}

// A container that has ended and is started again counts again, with what an update has asked of it. The ledger's books on its first life
// are closed ahead of the second, whatever the background job is at.
func TestSecondLife(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pod := r.pod("LS", nil)
	id := r.id(r.do("POST", "/containers/create", body(pod)))
	dir := parent + "/" + id
	r.do("POST", "/containers/"+id+"/start", nil)
	r.do("POST", "/containers/"+id+"/update", map[string]any{"CpuQuota": 50000})
	begun, stuck := make(chan struct{}), make(chan struct{})
	r.engine.RunPodLater(engine.Sandbox{ID: "slow", Read: func() *workload.Pod { close(begun); <-stuck; return &workload.Pod{ID: "slow", UID: "slow"} }})
	<-begun
	r.do("POST", "/containers/"+id+"/stop", nil)
	r.do("POST", "/containers/"+id+"/start", nil)
	runs := func() {
		t.Helper()
		if got := r.tree.Get(t, dir, "cpu.max.burst"); got != "50000" {
			t.Errorf("burst in the next life: %s", got)
		}
		if _, c, ok := r.engine.Known(id); !ok || c.State == workload.StateStopped || c.State == workload.StateCreating || c.Base.Quota.V != 50000 {
			t.Errorf("in its next life it is %+v", c)
		}
	}
	runs()
	ended, wrote := -1, -1
	for i, rec := range r.book.All() {
		switch {
		case rec.Target.Container != id:
		case rec.Via == journal.ViaGone:
			ended = i
		case rec.Via == journal.ViaDirect:
			wrote = i
		}
	}
	if ended < 0 || wrote < ended {
		t.Errorf("the end of its first life is record %d, the last write of its second %d", ended, wrote)
	}
	close(stuck)
	r.engine.Stop(id) // seen without processes, between two lives
	r.tree.Set(t, dir, "cpu.max.burst", "0")
	r.do("POST", "/containers/"+id+"/restart", nil)
	runs()
}

// What an update was answered with and has been decided away since, the daemon writes again when it starts the container again.
func TestSecondLifeOfAnOldAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pod := r.pod("LS", nil)
	b := body(pod)
	b["HostConfig"].(map[string]any)["CpuQuota"] = 200000
	id := r.id(r.do("POST", "/containers/create", b))
	r.do("POST", "/containers/"+id+"/start", nil)
	stands := func(want string) {
		t.Helper()
		enginetest.Eventually(t, "cpu.max "+want, func() bool { return r.tree.Get(t, parent+"/"+id, "cpu.max") == want })
	}
	loop := func(gen uint64, quotas map[string]node.QuotaLoop) {
		r.engine.Views().SetHandoff(handoff.Snapshot{DynamicGeneration: gen, Dynamic: node.Dynamic{Known: true, Expires: time.Now().Add(time.Hour), Quotas: quotas}})
	}
	loop(1, map[string]node.QuotaLoop{"u": {Cap: 1000}})
	stands("100000 100000")
	r.do("POST", "/containers/"+id+"/update", map[string]any{"CpuShares": 512})
	if got := r.host(id, "CpuQuota"); got != 100000.0 {
		t.Fatalf("the daemon has a quota of %v", got)
	}
	loop(2, nil)
	stands("200000 100000")
	r.tree.Set(t, parent+"/"+id, "cpu.max", "100000 100000") // as the daemon does
	r.do("POST", "/containers/"+id+"/restart", nil)
	stands("200000 100000")
	for range 2 {
		r.do("POST", "/containers/"+id+"/stop", nil)
		r.do("POST", "/containers/"+id+"/start", nil)
		stands("200000 100000")
		// Killed now, the next life of the proxy knows by the ledger that the daemon's value is not the client's.
		var base string
		for _, rec := range r.book.All() {
			switch {
			case rec.Target.Container != id:
			case rec.Via == journal.ViaGone:
				base = ""
			case rec.Via == journal.ViaRuntime && rec.Knob == plan.CPUQuota.String():
				base = rec.Base
			}
		}
		if base != "200000" {
			t.Errorf("the ledger has %q for what the client has asked for", base)
		}
	}
}

// What the daemon does not have any more is forgotten, whoever has removed it.
func TestRemovedBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pod := r.pod("LS", nil)
	id := r.id(r.do("POST", "/containers/create", body(pod)))
	r.do("POST", "/containers/"+id+"/start", nil)
	for _, what := range []string{id, pod} {
		r.mu.Lock()
		delete(r.records, what) // behind our back
		r.mu.Unlock()
		if status, _ := r.call("DELETE", "/containers/"+what, nil); status != http.StatusNotFound {
			t.Errorf("the removal of what is gone: %d", status)
		}
	}
	if len(r.engine.IDs())+len(r.engine.PodIDs()) > 0 {
		t.Error("something is still known")
	}
	pod = r.pod("LS", nil)
	id = r.id(r.do("POST", "/containers/create", body(pod)))
	for _, what := range []string{id, pod} {
		r.leave(http.MethodDelete, "/containers/"+what)
	}
	enginetest.Eventually(t, "all is forgotten", func() bool {
		_, _, known := r.engine.Known(id)
		return !known && len(r.engine.PodIDs()) == 0
	})
}
