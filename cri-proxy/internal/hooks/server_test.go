// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooks_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/adapt/hook/hooktest"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/model/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answerer answers one call: the hook's name and the request as a tree, the answer as a tree.
type answerer func(ctx context.Context, hook string, request map[string]any) (map[string]any, error)

// serve runs a hook server on gRPC's own library; the messages are protobuf's, described independently of our codec.
func serve(t *testing.T, network, address string, answer answerer) (*grpc.Server, string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	types := hooktest.New(t)
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		name := strings.TrimSuffix(strings.TrimPrefix(method, "/runtime.v1alpha1.RuntimeHookService/"), "Hook")
		message := "ContainerResourceHook"
		if strings.HasSuffix(name, "PodSandbox") {
			message = "PodSandboxHook"
		}
		in, out := types.Message(message+"Request"), types.Message(message+"Response")
		if err := stream.RecvMsg(in); err != nil {
			return err
		}
		tree, err := answer(stream.Context(), name, hooktest.Tree(in))
		if err != nil {
			return err
		}
		hooktest.Set(out, tree)
		return stream.SendMsg(out)
	}))
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return s, l.Addr().String()
}

// write puts a configuration file in place, in one step as an editor does.
func write(t *testing.T, dir, name, content string) {
	t.Helper()
	tmp := filepath.Join(dir, "."+name+".tmp")
	if err := os.WriteFile(tmp, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// register writes the file that koordlet would.
func register(t *testing.T, dir, name, endpoint, policy string, kinds ...hook.Kind) {
	t.Helper()
	var names []string
	for _, k := range kinds {
		names = append(names, `"`+k.String()+`"`)
	}
	write(t, dir, name+".json", fmt.Sprintf("{\n\t\"remote-endpoint\": %q,\n\t\"failure-policy\": %q,\n\t\"runtime-hooks\": [%s]\n}", endpoint, policy, strings.Join(names, ",")))
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
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not in 20 s: %s", what)
		case <-tick.C:
		}
	}
}
