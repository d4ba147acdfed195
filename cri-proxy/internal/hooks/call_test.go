// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooks_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/adapt/hook/hooktest"
	"github.com/koord-rt/koord-rt/adapt/unary"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/model/plan"
)

// All seven hooks over a socket's path and over host:port: the request arrives as protobuf reads it, the answers of the
// hooks before the runtime become plans.
func TestEveryHook(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"unix", "tcp"} {
		var mu sync.Mutex
		got := map[string]map[string]any{}
		address := "127.0.0.1:0"
		if network == "unix" {
			address = filepath.Join(t.TempDir(), "hook.sock")
		}
		_, endpoint := hooktest.Serve(t, network, address, func(_ context.Context, name string, in map[string]any) (map[string]any, error) {
			mu.Lock()
			defer mu.Unlock()
			got[name] = in
			if strings.HasSuffix(name, "PodSandbox") {
				return map[string]any{"labels": map[string]string{"l": "1", "new": "2"}, "annotations": map[string]string{"by": name},
					"cgroup_parent": "/offline", "resources": map[string]any{"cpu_shares": int64(99)}}, nil
			}
			return map[string]any{"container_annotations": map[string]string{"by": name}, "container_envs": map[string]string{"TOKEN": "secret", "X": "y"},
				"container_resources": map[string]any{"cpu_shares": int64(2), "unified": map[string]string{"memory.high": "max"}}}, nil
		})
		dir := t.TempDir()
		register(t, dir, "koordlet", endpoint, "Fail", all()...)
		seen := &calls{}
		r := open(t, dir, func(o *hooks.Options) { patient(o); o.Observe = seen.add })
		for k := range hook.NumKinds {
			answers, err := call(t.Context(), r, k)
			if err != nil {
				t.Fatalf("%s %s: %v", network, k, err)
			}
			checkEveryHook(t, k, answers)
			if c := seen.last(t); c.Server != "koordlet" || c.Hook != k || c.Result != hooks.ResultOK || c.Err != nil {
				t.Errorf("%s: observed %+v", k, c)
			}
		}
		meta := map[string]any{"name": "web", "uid": "u", "namespace": "default"}
		shares := map[string]any{"cpu_shares": int64(2)}
		for k := range hook.NumKinds {
			want := map[string]any{"pod_meta": meta, "container_meta": map[string]any{"name": "app", "id": "c1"}, "container_resources": shares,
				"pod_labels": map[string]string{"l": "1"}, "pod_cgroup_parent": "/k/p", "container_envs": map[string]string{"TOKEN": "secret"}}
			if k.OfPod() {
				want = map[string]any{"pod_meta": meta, "runtime_handler": "runc", "labels": map[string]string{"l": "1"}, "cgroup_parent": "/k/p", "resources": shares}
			}
			if diff := cmp.Diff(want, got[k.String()]); diff != "" {
				t.Errorf("%s %s was asked (-want +got):\n%s", network, k, diff)
			}
		}
	}
}

func checkEveryHook(t *testing.T, k hook.Kind, answers []hooks.Answer) {
	t.Helper()
	if !k.Before() {
		if len(answers) > 0 {
			t.Errorf("%s: the runtime has done its part, but: %+v", k, answers)
		}
		return
	}
	if len(answers) != 1 || answers[0].Server != "koordlet" || answers[0].Merge != config.HookYields {
		t.Fatalf("%s: answers %+v", k, answers)
	}
	a := answers[0]
	want := hook.Change{Labels: map[string]string{"new": "2"}, Annotations: map[string]string{"by": k.String()}, CgroupParent: "/offline",
		Plan: plan.Plan{{Target: podTarget, Knob: plan.CPUShares, Value: plan.Int(99), Hook: "koordlet", Reason: "answer of the hook server"}}}
	if !k.OfPod() {
		p := a.Plan
		if len(p) != 2 || p[0].Knob != plan.MemoryHigh || p[0].Value != plan.Int(-1) || p[1].Knob != plan.Env || p[1].Key != "X" || p[0].By() != "hook:koordlet" {
			t.Errorf("%s: plan\n%s", k, p)
		}
		a.Plan, want = nil, hook.Change{Annotations: map[string]string{"by": k.String()}}
	}
	if diff := cmp.Diff(want, a.Change, cmp.AllowUnexported(plan.Value{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", k, diff)
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	_, endpoint := hooktest.Serve(t, "unix", filepath.Join(t.TempDir(), "s"), func(context.Context, string, map[string]any) (map[string]any, error) {
		return nil, status.Error(codes.Internal, "no quota left")
	})
	for _, policy := range []string{"Fail", "Ignore", ""} {
		dir := t.TempDir()
		register(t, dir, "x", endpoint, policy, all()...)
		seen := &calls{}
		r := open(t, dir, func(o *hooks.Options) { patient(o); o.Observe = seen.add })
		for k := range hook.NumKinds {
			answers, err := call(t.Context(), r, k)
			want := hooks.ResultIgnored
			if policy == "Fail" && k.Before() {
				want = hooks.ResultRefused
			}
			if got := seen.last(t); got.Result != want || got.Late || !strings.Contains(got.Err.Error(), "no quota left") || len(answers) > 0 {
				t.Errorf("%q %s: %+v", policy, k, got)
			}
			if want == hooks.ResultIgnored {
				if err != nil {
					t.Errorf("%q %s: %v", policy, k, err)
				}
				continue
			}
			var refusal *hooks.Refusal
			var answered *unary.Status
			if !errors.As(err, &refusal) || !errors.As(err, &answered) || answered.Code != int(codes.Internal) {
				t.Fatalf("%s: %v", k, err)
			}
			for _, part := range []string{"hook server x", "unix://" + endpoint, k.String(), "default/web", filepath.Join(dir, "x.json"), "Fail", "no quota left"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q does not say %q", k, err, part)
				}
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: a variable's value in %q", k, err)
			}
		}
	}
}

// A server that does not answer costs its time and no more.
func TestTimeout(t *testing.T) {
	t.Parallel()
	_, endpoint := hooktest.Serve(t, "unix", filepath.Join(t.TempDir(), "s"), func(ctx context.Context, _ string, _ map[string]any) (map[string]any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	for _, policy := range []string{"Fail", "Ignore"} {
		dir := t.TempDir()
		register(t, dir, "slow", endpoint, policy, all()...)
		seen := &calls{}
		r := open(t, dir, func(o *hooks.Options) {
			o.Observe, o.Config.Timeout = seen.add, config.Duration(50*time.Millisecond)
		})
		start := time.Now()
		_, err := call(t.Context(), r, hook.PreCreateContainer)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: took %v", policy, took)
		}
		if got := seen.last(t); !got.Late || (policy == "Fail") != (err != nil) {
			t.Errorf("%s: %v, %+v", policy, err, got)
		}
	}
	// Without a setting most of the CRI call's time is left.
	dir := t.TempDir()
	register(t, dir, "slow", endpoint, "Ignore", all()...)
	r := open(t, dir, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := call(ctx, r, hook.PreCreateContainer); err != nil || ctx.Err() != nil {
		t.Errorf("%v, %v: nothing is left for the call itself", err, ctx.Err())
	}
}

func TestServerGoneAndBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	dir := t.TempDir()
	register(t, dir, "x", path, "Fail", all()...)
	r := open(t, dir, patient)
	answer := func(context.Context, string, map[string]any) (map[string]any, error) {
		return map[string]any{"container_annotations": map[string]string{"a": "b"}}, nil
	}
	for range 3 {
		if _, err := call(t.Context(), r, hook.PreCreateContainer); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("no server: %v", err)
		}
		s, _ := hooktest.Serve(t, "unix", path, answer)
		if answers, err := call(t.Context(), r, hook.PreCreateContainer); err != nil || len(answers) != 1 {
			t.Errorf("server is back: %v, %v", answers, err)
		}
		s.Stop()
	}
}

// An answer beyond any bound is a failed call, and does not fill the memory.
func TestHugeAnswer(t *testing.T) {
	t.Parallel()
	_, endpoint := hooktest.Serve(t, "unix", filepath.Join(t.TempDir(), "s"), func(_ context.Context, name string, _ map[string]any) (map[string]any, error) {
		if name == "PreRunPodSandbox" {
			many := make(map[string]string, 20000)
			for i := range 20000 {
				many[time.Duration(i).String()] = ""
			}
			return map[string]any{"labels": many}, nil
		}
		return map[string]any{"pod_cgroup_parent": strings.Repeat("x", hook.MaxMessage)}, nil
	})
	dir := t.TempDir()
	register(t, dir, "x", endpoint, "Fail", all()...)
	r := open(t, dir, patient)
	if _, err := call(t.Context(), r, hook.PreCreateContainer); !errors.Is(err, unary.ErrTooLarge) {
		t.Errorf("long answer: %v", err)
	}
	if _, err := call(t.Context(), r, hook.PreRunPodSandbox); !errors.Is(err, hook.ErrBounds) {
		t.Errorf("many labels: %v", err)
	}
	asked := containerRequest()
	asked.Env["BIG"] = strings.Repeat("x", hook.MaxMessage)
	if _, err := r.Container(t.Context(), hook.PreCreateContainer, asked, containerTarget); !errors.Is(err, unary.ErrTooLarge) {
		t.Errorf("long request: %v", err)
	}
	asked.Env["BIG"] = "secret\xff"
	_, err := r.Container(t.Context(), hook.PreCreateContainer, asked, containerTarget)
	if !errors.Is(err, hook.ErrText) || strings.Contains(err.Error(), "secret") {
		t.Errorf("bad text: %v", err)
	}
}

// Several servers are asked by name, each the same question; one that fails to be ignored does not stop the next.
func TestSeveralServers(t *testing.T) {
	t.Parallel()
	answer := func(shares int64) hooktest.Answer {
		return func(_ context.Context, _ string, in map[string]any) (map[string]any, error) {
			if in["container_resources"].(map[string]any)["cpu_shares"] != int64(2) {
				return nil, status.Error(codes.Internal, "asked with another server's answer")
			}
			return map[string]any{"container_resources": map[string]any{"cpu_shares": shares}}, nil
		}
	}
	dir := t.TempDir()
	_, first := hooktest.Serve(t, "unix", filepath.Join(t.TempDir(), "s"), answer(10))
	_, second := hooktest.Serve(t, "unix", filepath.Join(t.TempDir(), "s"), answer(20))
	register(t, dir, "a", first, "Fail", hook.PreCreateContainer)
	register(t, dir, "b", filepath.Join(dir, "nobody"), "Ignore", all()...)
	register(t, dir, "c", second, "Fail", hook.PreCreateContainer, hook.PreStartContainer)
	r := open(t, dir, func(o *hooks.Options) {
		patient(o)
		o.Config.Servers = map[string]config.HookMerge{"c": config.HookReplaces}
	})
	answers, err := call(t.Context(), r, hook.PreCreateContainer)
	if err != nil || len(answers) != 2 {
		t.Fatalf("%v, %v", answers, err)
	}
	merged, conflicts := mergeAll(nil, answers)
	if len(merged) != 1 || merged[0].By() != "hook:a" || merged[0].Value != plan.Int(10) || len(conflicts) != 1 || conflicts[0].Dropped.By() != "hook:c" {
		t.Errorf("merged\n%s%v", merged, conflicts)
	}
	ours := plan.Plan{{Target: containerTarget, Knob: plan.CPUShares, Value: plan.Int(5)}}
	merged, conflicts = mergeAll(ours, answers)
	if len(merged) != 1 || merged[0].By() != "hook:c" || len(conflicts) != 2 {
		t.Errorf("a yields to us, we to c:\n%s%v", merged, conflicts)
	}
	if answers, err := call(t.Context(), r, hook.PreStartContainer); err != nil || len(answers) != 1 || answers[0].Server != "c" {
		t.Errorf("only c takes it: %v, %v", answers, err)
	}
}

// mergeAll merges the plans of all answers into ours, each by its server's mode.
func mergeAll(ours plan.Plan, answers []hooks.Answer) (plan.Plan, []hooks.Conflict) {
	var conflicts []hooks.Conflict
	for i := range answers {
		var more []hooks.Conflict
		ours, more = hooks.Merge(ours, answers[i].Plan, answers[i].Merge)
		conflicts = append(conflicts, more...)
	}
	return ours, conflicts
}

// Not parallel: it counts the process's allocations. Without a server registered a hook costs nothing.
func TestNoServerCostsNothing(t *testing.T) {
	r := open(t, t.TempDir(), nil)
	asked, ctx, labels := containerRequest(), t.Context(), map[string]string{"a": "b"}
	if n := testing.AllocsPerRun(100, func() {
		if r.Wants(hook.PreCreateContainer) || r.Skips(labels, nil) {
			t.Error("wants")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = r.Container(ctx, hook.PreCreateContainer, asked, containerTarget) }); n > 2 {
		t.Errorf("%v allocations for a call to nobody", n)
	}
}
