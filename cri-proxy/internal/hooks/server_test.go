// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooks_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/adapt/hook/hooktest"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/model/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// register writes the file that koordlet would.
func register(t *testing.T, dir, name, endpoint, policy string, kinds ...hook.Kind) {
	t.Helper()
	var names []string
	for _, k := range kinds {
		names = append(names, k.String())
	}
	hooktest.Register(t, dir, name, endpoint, policy, names...)
}

func all() []hook.Kind {
	var out []hook.Kind
	for k := range hook.NumKinds {
		out = append(out, k)
	}
	return out
}

// open makes a registry of a directory with the default configuration.
func open(t *testing.T, dir string, set func(*hooks.Options)) *hooks.Registry {
	t.Helper()
	o := hooks.Options{Config: config.DefaultProxy().Hooks}
	o.Config.Dir = dir
	if set != nil {
		set(&o)
	}
	r := hooks.New(o)
	t.Cleanup(r.Close)
	return r
}

// patient gives a call the time that a machine under load needs.
func patient(o *hooks.Options) { o.Config.Timeout = config.Duration(time.Minute) }

// calls collects what Observe is told.
type calls struct {
	mu   sync.Mutex
	list []hooks.Call
}

func (c *calls) add(call hooks.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, call)
}

func (c *calls) last(t *testing.T) hooks.Call {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) == 0 {
		t.Fatal("no call was observed")
	}
	return c.list[len(c.list)-1]
}

var (
	podTarget       = plan.Target{Level: plan.LevelPod, Cgroup: "/k/p", Pod: "u", Name: "default/web"}
	containerTarget = plan.Target{Level: plan.LevelContainer, Cgroup: "/k/p/c", Pod: "u", Container: "c1", Name: "default/web/app"}
)

func podRequest() *hook.PodRequest {
	return &hook.PodRequest{Pod: hook.Pod{Name: "web", UID: "u", Namespace: "default"}, RuntimeHandler: "runc",
		Labels: map[string]string{"l": "1"}, CgroupParent: "/k/p", Resources: &hook.Resources{Shares: 2}}
}

func containerRequest() *hook.ContainerRequest {
	return &hook.ContainerRequest{Pod: hook.Pod{Name: "web", UID: "u", Namespace: "default"}, Container: hook.Container{Name: "app", ID: "c1"},
		Resources: &hook.Resources{Shares: 2}, PodLabels: map[string]string{"l": "1"}, PodCgroupParent: "/k/p", Env: map[string]string{"TOKEN": "secret"}}
}

// call makes any of the seven calls.
func call(ctx context.Context, r *hooks.Registry, k hook.Kind) ([]hooks.Answer, error) {
	if k.OfPod() {
		return r.Pod(ctx, k, podRequest(), podTarget)
	}
	return r.Container(ctx, k, containerRequest(), containerTarget)
}

// eventually polls until ok, for real watchers and processes.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not in a minute: %s", what)
		case <-tick.C:
		}
	}
}
