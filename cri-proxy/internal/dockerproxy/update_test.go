// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockerproxy

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/model/plan"
)

// What a hook server answers to an update goes to the daemon with its owner, in place of what it answered before, and is
// taken back with an update that the daemon refuses. It is asked with what the client wants now.
func TestUpdateWithAHookServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := &hookServer{}
	h.serve(t, r.hooks, "Fail")
	enginetest.Eventually(t, "the registration", func() bool { return r.o.Hooks.Wants(hook.PreRunPodSandbox) })
	pod := r.pod("LS", nil)
	id := r.id(r.do("POST", "/containers/create", body(pod)))
	r.do("POST", "/containers/"+id+"/start", nil)
	asked := make(chan map[string]any, 1)
	answer := func(shares int64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.update = func(in map[string]any) map[string]any {
			asked <- in["container_resources"].(map[string]any)
			return map[string]any{"container_resources": map[string]any{"cpu_shares": shares}, "container_envs": map[string]string{"S": "x"}}
		}
	}
	answer(640)
	r.do("POST", "/containers/"+id+"/update", map[string]any{"CpuQuota": 60000})
	if in := <-asked; in["cpu_quota"] != int64(60000) || in["cpu_shares"] != int64(1024) || in["cpu_period"] != int64(100000) {
		t.Errorf("the server was asked with %v", in)
	}
	if shares, quota := r.host(id, "CpuShares"), r.host(id, "CpuQuota"); shares != 640.0 || quota != 60000.0 {
		t.Errorf("the daemon has %v shares and a quota of %v", shares, quota)
	}
	owned := func(want int64) {
		t.Helper()
		_, c, _ := r.engine.Known(id)
		if len(c.Foreign) != 1 || c.Foreign[0].Knob != plan.CPUShares || c.Foreign[0].Value != plan.Int(want) || c.Foreign[0].By() != "hook:koordlet" {
			t.Errorf("the server's part is %v, want %d shares", c.Foreign, want)
		}
		if c.Base.Shares.V != 1024 {
			t.Errorf("the base is %+v", c.Base)
		}
	}
	owned(640)
	answer(320)
	r.mu.Lock()
	r.broken = true
	r.mu.Unlock()
	if status, _ := r.call("POST", "/containers/"+id+"/update", map[string]any{"CpuQuota": 70000}); status != 500 {
		t.Errorf("a refused update: %d", status)
	}
	<-asked
	owned(640)
	// A server that fails refuses the update, and nothing changes.
	h.mu.Lock()
	h.fail = "PreUpdateContainerResources"
	h.mu.Unlock()
	r.mu.Lock()
	r.broken = false
	r.mu.Unlock()
	if status, _ := r.call("POST", "/containers/"+id+"/update", map[string]any{"CpuQuota": 80000}); status != 500 || r.host(id, "CpuQuota") != 60000.0 {
		t.Errorf("%d, the daemon has a quota of %v", status, r.host(id, "CpuQuota"))
	}
	owned(640)
}

// A daemon that dies over an update has done it or not; its record tells, in its next answers.
func TestLostUpdate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		applied bool
		quota   int64
		burst   string
	}{"done": {true, 60000, "60000"}, "not done": {false, 100000, "100000"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			pod := r.pod("LS", nil)
			id := r.id(r.do("POST", "/containers/create", body(pod)))
			r.do("POST", "/containers/"+id+"/start", nil)
			r.mu.Lock()
			r.dies = &tt.applied
			r.mu.Unlock()
			if status, _ := r.call("POST", "/containers/"+id+"/update", map[string]any{"CpuQuota": 60000}); status != 502 {
				t.Errorf("an update without an answer: %d", status)
			}
			enginetest.Eventually(t, "the base that the daemon has", func() bool { _, c, _ := r.engine.Known(id); return c.Base.Quota.V == tt.quota })
			enginetest.Eventually(t, "the burst that goes with it", func() bool { return r.tree.Get(t, parent+"/"+id, "cpu.max.burst") == tt.burst })
			r.do("POST", "/containers/"+id+"/update", map[string]any{"CpuQuota": 50000})
			enginetest.Eventually(t, "the next burst", func() bool { return r.tree.Get(t, parent+"/"+id, "cpu.max.burst") == "50000" })
			if _, c, _ := r.engine.Known(id); c.Base.Quota.V != 50000 {
				t.Errorf("the next base: %+v", c.Base)
			}
		})
	}
}

// A hook server that hangs after the daemon has done its part does not hold up the end.
func TestEndDuringAHook(t *testing.T) {
	t.Parallel()
	h := &hookServer{hangs: "PostStartContainer", entered: make(chan struct{})}
	r := newRig(t, func(c *config.Proxy) { c.Hooks.Timeout = config.Duration(2 * time.Minute) })
	h.serve(t, r.hooks, "Fail") // which has all of the time that there is
	enginetest.Eventually(t, "the registration", func() bool { return r.o.Hooks.Wants(hook.PreRunPodSandbox) })
	pod := r.pod("LS", nil)
	id := r.id(r.do("POST", "/containers/create", body(pod)))
	gone := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(gone)
		r.try(ctx, http.MethodPost, "/containers/"+id+"/start")
	}()
	<-h.entered
	r.stop()
	select {
	case <-r.ended:
	case <-time.After(time.Minute): // the decision's own limit is two minutes
		t.Error("the proxy does not end")
	}
	cancel()
	<-gone
}
