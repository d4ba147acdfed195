// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy_test

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/hook/hooktest"
	"github.com/koord-rt/koord-rt/api/config"
)

// A hook server hears behind a call of what was done: nothing of one that the runtime has refused, and once of its retry.
func TestHooksBehindARefusedCall(t *testing.T) {
	t.Parallel()
	var (
		mu   sync.Mutex
		told []string
	)
	r := newRig(t, func(c *config.Proxy) {
		_, at := hooktest.Serve(t, "unix", filepath.Join(c.Hooks.Dir, "h.sock"), func(_ context.Context, name string, _ map[string]any) (map[string]any, error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, name)
			return nil, nil
		})
		hooktest.Register(t, c.Hooks.Dir, "behind", at, "Fail", "PostStartContainer", "PostStopContainer", "PostStopPodSandbox")
	})
	sandbox, cfg := r.pod(t, "behind", "LS", nil)
	reply, err := r.CreateContainer(t.Context(), createOf(sandbox, cfg))
	must(t, err)
	var want []string
	for _, step := range []struct {
		tells string
		call  func() error
	}{
		{"PostStartContainer", func() error {
			_, err := r.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: reply.ContainerId})
			return err
		}},
		{"PostStopContainer", func() error {
			_, err := r.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: reply.ContainerId})
			return err
		}},
		{"PostStopPodSandbox", func() error {
			_, err := r.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox})
			return err
		}},
	} {
		r.fake.refuse.Store(true)
		if step.call() == nil {
			t.Error("the runtime has not refused")
		}
		r.fake.refuse.Store(false)
		must(t, step.call())
		want = append(want, step.tells)
	}
	must(t, r.server.Shutdown(t.Context())) // which waits for what is behind the calls
	slices.Sort(told)
	if slices.Sort(want); !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
