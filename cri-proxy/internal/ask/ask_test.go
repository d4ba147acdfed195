// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ask_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/adapt/hook/hooktest"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/ask"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// rig is a hook server, what asks it, and a runtime that tells what was stated of the pod "known".
type rig struct {
	*ask.Servers
	engine *engine.Engine

	mu     sync.Mutex
	read   int
	asked  map[string][]map[string]any // by hook
	answer map[string]any
}

var (
	errGone   = errors.New("the runtime does not know it")
	pod       = &workload.Pod{ID: "known", UID: "u", Namespace: "default", Name: "web"}
	gone      = &workload.Pod{ID: "gone", UID: "v", Namespace: "default", Name: "gone"}
	container = &workload.Container{ID: "c1", Name: "app", Base: workload.Resources{Shares: unit.Some(512)}}
	stated    = ask.Stated{
		Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "2"}, CgroupParent: "/k/p", Attempt: 3,
		Resources: &hook.Resources{Shares: 77},
	}
)

func newRig(t *testing.T, policy string, kinds ...hook.Kind) *rig {
	t.Helper()
	r := &rig{asked: map[string][]map[string]any{}}
	_, at := hooktest.Serve(t, "unix", filepath.Join(t.TempDir(), "s"), func(_ context.Context, name string, in map[string]any) (map[string]any, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked[name] = append(r.asked[name], in)
		return r.answer, nil
	})
	cfg := config.DefaultProxy()
	cfg.Hooks.Dir = t.TempDir()
	var names []string
	for _, k := range kinds {
		names = append(names, k.String())
	}
	hooktest.Register(t, cfg.Hooks.Dir, "koordlet", at, policy, names...)
	m, err := metrics.NewEngine(prometheus.NewRegistry(), "test")
	if err != nil {
		t.Fatal(err)
	}
	r.engine = engine.New(engine.Options{
		Config: cfg.Node, Log: slog.New(slog.DiscardHandler), Metrics: m, Views: engine.NewViews(cfg.Node, engine.Static{}, nil, "test"),
	})
	registry := hooks.New(hooks.Options{Config: cfg.Hooks})
	t.Cleanup(registry.Close)
	r.Servers = ask.New(ask.Options{Hooks: registry, Engine: r.engine, Read: func(_ context.Context, sandbox string) (ask.Stated, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.read++; sandbox != pod.ID {
			return ask.Stated{}, errGone
		}
		return stated, nil
	}})
	return r
}

// problem is whether something was told.
func (r *rig) problem(where, key, reason string) bool {
	for _, p := range r.engine.Status().Problems {
		if p.Where == where && p.Key == key && strings.Contains(p.Reason, reason) {
			return true
		}
	}
	return false
}

// What a server is told of a container that exists, and that the runtime is asked about its pod once.
func TestContainer(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Fail", hook.PreStartContainer, hook.PostStartContainer)
	for range 3 {
		if err := r.Start(t.Context(), pod, container); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]any{
		"pod_meta":       map[string]any{"name": "web", "uid": "u", "namespace": "default", "attempt": uint32(3)},
		"container_meta": map[string]any{"name": "app", "id": "c1"}, "container_resources": map[string]any{"cpu_shares": int64(512)},
		"pod_resources": map[string]any{"cpu_shares": int64(77)}, "pod_annotations": stated.Annotations, "pod_labels": stated.Labels, "pod_cgroup_parent": "/k/p",
	}
	if diff := cmp.Diff(want, r.asked["PreStartContainer"][0]); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	r.Tell(t.Context(), hook.PostStartContainer, pod, container)
	if len(r.asked["PreStartContainer"]) != 3 || len(r.asked["PostStartContainer"]) != 1 || r.read != 1 {
		t.Errorf("asked %d and %d times, the runtime %d times", len(r.asked["PreStartContainer"]), len(r.asked["PostStartContainer"]), r.read)
	}
	r.Drop(pod.ID)
	r.Keep(pod.ID, ask.Stated{Labels: map[string]string{"runtimeproxy.koordinator.sh/skip-hookserver": "true"}})
	if err := r.Start(t.Context(), pod, container); err != nil || len(r.asked["PreStartContainer"]) != 3 {
		t.Errorf("a hook server's own pod: %v, asked %d times", err, len(r.asked["PreStartContainer"]))
	}
	if want, err := r.Update(t.Context(), gone, container, container.Base); want != nil || err != nil || r.read != 1 {
		t.Errorf("a hook that nobody takes: %v, %v, %d questions", want, err, r.read)
	}
}

// Values have no place in the answer to a start; that is told, and the start goes on.
func TestValuesOfAStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Fail", hook.PreStartContainer)
	if err := r.Start(t.Context(), pod, container); err != nil || len(r.engine.Status().Problems) > 0 {
		t.Errorf("%v, %v", err, r.engine.Status().Problems)
	}
	r.answer = map[string]any{"container_resources": map[string]any{"cpu_shares": int64(5)}}
	if err := r.Start(t.Context(), pod, container); err != nil || !r.problem("default/web/app", "hook:koordlet", "answer PreCreateContainer") {
		t.Errorf("%v, %v", err, r.engine.Status().Problems)
	}
}

// An update is asked with what is wanted now; what an update has no place for is left out, and told.
func TestUpdate(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Fail", hook.PreUpdateContainerResources)
	r.answer = map[string]any{
		"container_resources": map[string]any{"cpu_shares": int64(5), "unified": map[string]string{"hugetlb.2MB.max": "7"}},
		"container_envs":      map[string]string{"SECRET": "x"},
	}
	got, err := r.Update(t.Context(), pod, container, workload.Resources{Shares: unit.Some(1024)})
	if err != nil || len(got) != 1 || got[0].Knob != plan.CPUShares || got[0].Value != plan.Int(5) || got[0].By() != "hook:koordlet" || got[0].Target.Container != "c1" {
		t.Errorf("%v, %v", got, err)
	}
	if in := r.asked["PreUpdateContainerResources"][0]["container_resources"].(map[string]any); in["cpu_shares"] != int64(1024) {
		t.Errorf("asked with %v", in)
	}
	if !r.problem("default/web/app", "hook:koordlet", "hugetlb.2MB.max") {
		t.Errorf("told %v", r.engine.Status().Problems)
	}
	if container.Base.Shares.V != 512 {
		t.Error("the engine's container has been written to")
	}
}

// A pod that the runtime does not tell of is a failed call: refused by policy Fail, told either way, and nobody is asked.
func TestUnreadablePod(t *testing.T) {
	t.Parallel()
	for policy, refused := range map[string]bool{"Fail": true, "Ignore": false} {
		r := newRig(t, policy, hook.PreStartContainer, hook.PreUpdateContainerResources, hook.PostStopContainer, hook.PostStopPodSandbox)
		var refusal *hooks.Refusal
		if err := r.Start(t.Context(), gone, container); errors.As(err, &refusal) != refused || refused && !errors.Is(err, errGone) {
			t.Errorf("%s: start: %v", policy, err)
		}
		if _, err := r.Update(t.Context(), gone, container, container.Base); errors.As(err, &refusal) != refused {
			t.Errorf("%s: update: %v", policy, err)
		}
		r.Tell(t.Context(), hook.PostStopContainer, gone, container)
		r.TellPod(t.Context(), hook.PostStopPodSandbox, gone)
		if len(r.asked) > 0 || r.read != 4 {
			t.Errorf("%s: asked %v, the runtime %d times", policy, r.asked, r.read)
		}
	}
}

// Resources of a sandbox have no place; the rest of the answer has.
func TestPod(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Fail", hook.PreRunPodSandbox, hook.PostStopPodSandbox)
	r.answer = map[string]any{"labels": map[string]string{"new": "1"}, "resources": map[string]any{"cpu_shares": int64(5)}}
	answers, err := r.Pod(t.Context(), hook.PreRunPodSandbox, pod, stated)
	if err != nil || len(answers) != 1 || answers[0].Labels["new"] != "1" || !r.problem("default/web", "hook:koordlet", "resources of a sandbox") {
		t.Errorf("%+v, %v, %v", answers, err, r.engine.Status().Problems)
	}
	if in := r.asked["PreRunPodSandbox"][0]["pod_meta"].(map[string]any); in["attempt"] != uint32(3) {
		t.Errorf("asked about %v", in)
	}
	r.TellPod(t.Context(), hook.PostStopPodSandbox, pod)
	if len(r.asked["PostStopPodSandbox"]) != 1 {
		t.Errorf("told %d times", len(r.asked["PostStopPodSandbox"]))
	}
}
