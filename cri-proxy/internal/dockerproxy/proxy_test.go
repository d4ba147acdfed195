// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockerproxy

import (
	"context"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/adapt/hook/hooktest"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/model/workload"
)

// A container's burst, which no body can carry, stands when the client hears of the start; an update lowers it; one that
// the daemon refuses leaves it.
func TestLife(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pod := r.pod("LS", nil)
	inspected := r.asked("GET /containers/" + pod)
	id := r.id(r.do("POST", "/v1.41/containers/create", body(pod)))
	if n := r.asked("GET /containers/"+pod) - inspected; n != 0 {
		t.Errorf("the daemon was asked %d times for a known pod", n)
	}
	r.do("POST", "/v1.41/containers/"+id+"/start", nil)
	dir := parent + "/" + id
	if got := r.tree.Get(t, dir, "cpu.max.burst"); got != "100000" {
		t.Errorf("burst after the start: %s", got)
	}
	if n, seconds := r.afterStart(); n != 1 || seconds <= 0 || seconds > 60 {
		t.Errorf("%d starts measured, %v s", n, seconds)
	}
	enginetest.Eventually(t, "the pod's burst", func() bool { return r.tree.Get(t, parent, "cpu.max.burst") == "200000" })
	if p, _, ok := r.engine.Known(id); !ok || p.Base.Quota.V != 200000 || p.Base.Period.V != 100000 {
		t.Errorf("the pod's base: %+v", p)
	}
	r.do("POST", "/containers/"+id+"/update", map[string]any{"CpuQuota": 50000})
	enginetest.Eventually(t, "a smaller burst", func() bool { return r.tree.Get(t, dir, "cpu.max.burst") == "50000" })
	r.mu.Lock()
	r.broken = true
	r.mu.Unlock()
	if status, _ := r.call("POST", "/containers/"+id+"/update", map[string]any{"CpuQuota": 20000}); status != 500 {
		t.Errorf("a refused update: %d", status)
	}
	if _, c, ok := r.engine.Known(id); !ok || c.Base.Quota.V != 50000 {
		t.Errorf("after a refused update the base is %+v", c.Base)
	}
	enginetest.Eventually(t, "the old burst", func() bool { return r.tree.Get(t, dir, "cpu.max.burst") == "50000" })
	r.do("POST", "/containers/"+id+"/stop", nil)
	if _, c, _ := r.engine.Known(id); c.State != workload.StateStopped {
		t.Errorf("after the stop: %v", c.State)
	}
	r.do("DELETE", "/containers/"+id, nil)
	r.do("POST", "/containers/"+pod+"/kill", nil)
	r.do("DELETE", "/containers/"+pod, nil)
	if len(r.engine.IDs())+len(r.engine.PodIDs()) > 0 {
		t.Error("something is still known")
	}
}

// A pod that demands what only comes after the start is refused at the creation; one whose values do not stand after the
// start is ended.
func TestFailClosed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pod := r.pod("LS", map[string]string{protocol.AnnotationRequired: "cpu-burst"})
	if status, text := r.call("POST", "/containers/create", body(pod)); status != 500 || !strings.Contains(text, "required guarantee") {
		t.Errorf("a creation without its burst: %d %s", status, text)
	}
	if len(r.engine.IDs()) > 0 {
		t.Error("a refused container is known")
	}
	r.do("DELETE", "/containers/"+pod, nil)
	r.mu.Lock()
	r.careless = true // the daemon forgets the quota
	r.mu.Unlock()
	pod = r.pod("BE", map[string]string{
		protocol.AnnotationRequired:                  "batch",
		"node.koordinator.sh/extended-resource-spec": `{"containers":{"app":{"limits":{"kubernetes.io/batch-cpu":"500"},"requests":{"kubernetes.io/batch-cpu":"500"}}}}`,
	})
	in := body(pod)
	in["HostConfig"] = map[string]any{"CgroupParent": parent, "CpuShares": 2}
	id := r.id(r.do("POST", "/containers/create", in))
	if got := r.host(id, "CpuQuota"); got != 50000.0 {
		t.Fatalf("the body's quota is %v", got)
	}
	r.call("POST", "/containers/"+id+"/start", nil)
	if n := r.asked("POST /containers/" + id + "/stop?t=0"); n != 1 {
		t.Errorf("a container without its guarantee was stopped %d times", n)
	}
}

// A proxy that starts, and one whose daemon comes back, takes in what is there and forgets what is gone.
func TestList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pod := r.pod("LS", nil)
	id := r.id(r.do("POST", "/containers/create", body(pod)))
	r.do("POST", "/containers/"+id+"/start", nil)
	created := r.id(r.do("POST", "/containers/create", body(pod)))
	for _, first := range []bool{true, false} {
		r.engine.Synchronize(nil, nil) // a new life
		r.relist(first)
		p, c, ok := r.engine.Known(id)
		if !ok || p.ID != pod || p.Base.Quota.V != 200000 || c.Cgroup != parent+"/"+id || c.Base.Quota.V != 100000 {
			t.Errorf("first=%v: %+v of %+v", first, c, p)
		}
		if _, c, ok := r.engine.Known(created); !ok || c.State != workload.StateCreating {
			t.Errorf("first=%v: a created container is %+v", first, c)
		}
	}
	r.mu.Lock()
	r.one(httptest.NewRecorder(), id, "stop", nil) // behind our back
	delete(r.records, created)
	r.mu.Unlock()
	r.relist(false)
	if _, c, ok := r.engine.Known(id); !ok || c.State != workload.StateStopped {
		t.Errorf("one that has ended is %+v", c)
	}
	r.mu.Lock()
	clear(r.records)
	r.mu.Unlock()
	r.relist(false)
	if len(r.engine.IDs())+len(r.engine.PodIDs()) > 0 {
		t.Error("what is gone is still known")
	}
}

// What comes while the daemon is asked for everything stays: clients are not made to wait for the end of that.
func TestFirstListIsOvertaken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pod := r.pod("LS", nil)
	before := r.id(r.do("POST", "/containers/create", body(pod)))
	r.engine.Synchronize(nil, nil) // a new life
	var id string
	meanwhile := func() {
		id = r.id(r.do("POST", "/containers/create", body(pod)))
		r.do("POST", "/containers/"+id+"/start", nil)
	}
	r.read.Store(&meanwhile)
	r.relist(true)
	if _, known := r.engine.KnownPod(pod); !known || !r.ran(id) {
		_, c, _ := r.engine.Known(id)
		t.Errorf("its pod is known: %v; it is %+v", known, c)
	}
	if _, _, known := r.engine.Known(before); !known {
		t.Error("what was listed is not known")
	}
}

// A container that a client starts again while a later list is on its way, in which it has ended, runs.
func TestLaterListIsOvertaken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pod := r.pod("LS", nil)
	id := r.id(r.do("POST", "/containers/create", body(pod)))
	r.do("POST", "/containers/"+id+"/start", nil)
	r.do("POST", "/containers/"+id+"/stop", nil)
	again := func() { r.do("POST", "/containers/"+id+"/start", nil) }
	r.told.Store(&again)
	r.relist(false)
	if !r.ran(id) {
		_, c, _ := r.engine.Known(id)
		t.Errorf("it is %+v", c)
	}
}

// A sign of life is cheap: for its version the daemon starts two processes.
func TestPing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	must(t, r.ping(t.Context()))
	if versions, pings := r.asked("GET /version"), r.asked("GET /_ping"); versions != 1 || pings == 0 {
		t.Errorf("the daemon was asked %d times for its version and %d times for a sign of life", versions, pings)
	}
}

// One container that the daemon cannot tell about keeps nobody else from being known, and is not taken for removed.
func TestListWithABrokenContainer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pod := r.pod("LS", nil)
	id := r.id(r.do("POST", "/containers/create", body(pod)))
	r.do("POST", "/containers/"+id+"/start", nil)
	sick := r.id(r.do("POST", "/containers/create", body(pod)))
	r.do("POST", "/containers/"+sick+"/start", nil)
	r.mu.Lock()
	r.sick = sick
	r.mu.Unlock()
	for _, first := range []bool{false, true} {
		if missed, err := r.list(t.Context(), first); !missed || err != nil {
			t.Fatalf("first=%v: missed %v, %v", first, missed, err)
		}
		if _, _, known := r.engine.Known(id); !known {
			t.Errorf("first=%v: the other container is not known", first)
		}
		if _, _, known := r.engine.Known(sick); known == first {
			t.Errorf("first=%v: the broken one is known: %v", first, known)
		}
	}
	r.mu.Lock()
	r.sick = ""
	r.mu.Unlock()
	r.relist(false)
	if _, _, known := r.engine.Known(sick); !known {
		t.Error("it is not known when it can be read again")
	}
}

// hookServer notes the hooks that it is called for.
type hookServer struct {
	mu    sync.Mutex
	calls []string
	fail  string
	// hangs names the hook that is never answered; entered is closed when it is called.
	hangs   string
	entered chan struct{}
	// update answers PreUpdateContainerResources.
	update func(asked map[string]any) map[string]any
}

func (h *hookServer) serve(t *testing.T, dir, policy string) {
	t.Helper()
	_, at := hooktest.Serve(t, "unix", filepath.Join(dir, "hook.sock"), func(ctx context.Context, name string, asked map[string]any) (map[string]any, error) {
		if name == h.hangs {
			close(h.entered)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.calls = append(h.calls, name)
		switch {
		case name == h.fail:
			return nil, errors.New("no")
		case name == "PreCreateContainer":
			if pod, _ := asked["pod_labels"].(map[string]string); pod["koordinator.sh/qosClass"] != "LS" {
				t.Errorf("asked for %v", asked)
			}
			return map[string]any{
				"container_annotations": map[string]string{"hook/said": "yes"}, "container_resources": map[string]any{"cpu_shares": int64(300)},
				"container_envs": map[string]string{"A": "1", "C": "3"},
			}, nil
		case name == "PreUpdateContainerResources" && h.update != nil:
			return h.update(asked), nil
		case name == "PreRunPodSandbox":
			return map[string]any{"labels": map[string]string{"hooked": "yes"}}, nil
		}
		return nil, nil
	})
	hooktest.Register(t, dir, "koordlet", at, policy, "PreRunPodSandbox", "PreCreateContainer", "PreStartContainer",
		"PostStartContainer", "PreUpdateContainerResources", "PostStopContainer", "PostStopPodSandbox")
}

// All seven hooks of upstream's protocol are called in mode Docker, and what they answer stands in the bodies.
func TestHookServers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := &hookServer{}
	h.serve(t, r.hooks, "Fail")
	enginetest.Eventually(t, "the registration", func() bool { return r.o.Hooks.Wants(hook.PreRunPodSandbox) })
	pod := r.pod("LS", nil)
	id := r.id(r.do("POST", "/containers/create", body(pod)))
	r.do("POST", "/containers/"+id+"/start", nil)
	r.do("POST", "/containers/"+id+"/update", map[string]any{"CpuShares": 400})
	r.do("POST", "/containers/"+id+"/stop", nil)
	r.do("POST", "/containers/"+pod+"/stop", nil)
	want := "PreRunPodSandbox PreCreateContainer PreStartContainer PostStartContainer PreUpdateContainerResources PostStopContainer PostStopPodSandbox"
	h.mu.Lock()
	got := strings.Join(h.calls, " ")
	h.fail, h.calls = "PreCreateContainer", nil
	h.mu.Unlock()
	if got != want {
		t.Errorf("called %s", got)
	}
	in, err := r.o.Backend.Inspect(t.Context(), id)
	must(t, err)
	if in.Config.Labels["annotation.hook/said"] != "yes" || !slices.Contains(in.Config.Env, "C=3") || slices.Contains(in.Config.Env, "B=2") {
		t.Errorf("labels %v, %d variables", in.Config.Labels, len(in.Config.Env))
	}
	if mark := in.Config.Labels["annotation."+protocol.AnnotationApplied]; !strings.Contains(mark, `"cpu.shares":"300 hook:koordlet"`) {
		t.Errorf("our mark: %s", mark)
	}
	if in, err = r.o.Backend.Inspect(t.Context(), pod); err != nil || in.Config.Labels["hooked"] != "yes" {
		t.Errorf("labels of the pod: %v, %v", in.Config.Labels, err)
	}
	if status, text := r.call("POST", "/containers/create", body(pod)); status != 500 || !strings.Contains(text, "koordlet") {
		t.Errorf("a failed hook with policy Fail: %d %s", status, text)
	}
}

// The engine's questions about single containers.
func TestLister(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pod := r.pod("LS", nil)
	id := r.id(r.do("POST", "/containers/create", body(pod)))
	l := Lister{Backend: r.o.Backend}
	p, c, err := l.Container(t.Context(), id)
	if err != nil || p.ID != pod || c.ID != id {
		t.Errorf("%+v of %+v, %v", c, p, err)
	}
	if _, _, err := l.Container(t.Context(), pod); !errors.Is(err, errForeign) {
		t.Errorf("a sandbox: %v", err)
	}
	if _, _, err := l.Container(context.Background(), "gone"); err == nil {
		t.Error("one that does not exist")
	}
}

// A decision that is late leaves the body as it came; the start takes the container in, once.
func TestLate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pod := r.pod("LS", nil)
	r.engine.SetDeadline(1)
	id := r.id(r.do("POST", "/containers/create", body(pod)))
	r.engine.SetDeadline(5 * time.Second)
	r.do("POST", "/containers/"+id+"/start", nil)
	if got := r.tree.Get(t, parent+"/"+id, "cpu.max.burst"); got != "100000" {
		t.Errorf("burst after the start: %s", got)
	}
	enginetest.Eventually(t, "one container is known", func() bool { return r.engine.Status().Counters["containers"] == 1 })
}
