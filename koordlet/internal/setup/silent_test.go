// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube/kubetest"
)

// empty is a runtime without a pod.
type empty struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (empty) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.4.2"}, nil
}

func (empty) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{}, nil
}

func (empty) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{}, nil
}

// whole runs a whole agent on a machine without a pod, with an API server that has the node's objects. before has the agent before it runs.
func whole(t *testing.T, spoil func(cfg *config.Koordlet), before ...func(d *Daemon)) (d *Daemon, api *kubetest.Server) {
	t.Helper()
	api = kubetest.New(t)
	api.Put(t, "/api/v1/nodes", `{"metadata":{"name":"node-1","uid":"n"},"status":{"capacity":{"cpu":"8","memory":"16Gi"},"allocatable":{"cpu":"8","memory":"16Gi"}}}`)
	api.Put(t, "/apis/slo.koordinator.sh/v1alpha1/nodeslos", `{"metadata":{"name":"node-1","uid":"s","generation":1},"spec":{"cpuBurstStrategy":{"policy":"cpuBurstOnly"}}}`)
	api.Put(t, "/apis/slo.koordinator.sh/v1alpha1/nodemetrics", `{"metadata":{"name":"node-1","uid":"m"},"spec":{"metricCollectPolicy":{"reportIntervalSeconds":10,"aggregateDurationSeconds":10}}}`)
	api.Serve("/api/v1/pods")
	api.Serve("/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies")
	cfg := on(t, enginetest.New(t, "6.12", appCgroup))
	dir := t.TempDir()
	cfg.APIServer.Mode, cfg.APIServer.Kubeconfig, cfg.APIServer.Topology = config.APIServerAuto, filepath.Join(dir, "kubeconfig"), true
	if err := os.WriteFile(cfg.APIServer.Kubeconfig, []byte(wayTo(api)), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "cri.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeEndpoint = "unix://" + socket
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, empty{})
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	spoil(&cfg)
	if d, err = New(t.Context(), Loaded{Config: cfg}, "v1", "koordlet v1", slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil {
		t.Fatal(err)
	}
	for _, edit := range before {
		edit(d)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return d, api
}

// tells are the kinds of objects that were written and how often, dry runs left out.
func tells(api *kubetest.Server) map[string]int {
	kinds := map[string]int{}
	for _, r := range api.Requests("") {
		if r.Method == "GET" || strings.Contains(r.Query, "dryRun") {
			continue
		}
		kind, _, _ := strings.Cut(strings.TrimPrefix(r.Path, "/apis/"), "/node-1")
		kinds[path.Base(kind)]++
	}
	return kinds
}

// TestSilentWithoutTheLock: a whole agent tells the cluster what it has measured, what is in force and of what the node is made; one without its lock,
// beside which another may be, tells nothing meanwhile, nor in the 15 s after which it would say what is not in force.
func TestSilentWithoutTheLock(t *testing.T) {
	t.Parallel()
	barred, silent := whole(t, func(cfg *config.Koordlet) {
		if err := os.Mkdir(lock.Path(cfg.RunDir, Writer), 0o700); err != nil {
			t.Fatal(err)
		}
	})
	begun := time.Now()
	_, api := whole(t, func(*config.Koordlet) {})
	enginetest.Eventually(t, "each kind of object by the agent with the lock", func() bool {
		got := tells(api)
		return got["nodemetrics"] > 0 && got["nodeslos"] > 0 && got["noderesourcetopologies"] > 0
	})
	enginetest.Eventually(t, "the agent without the lock goes on", func() bool {
		look := barred.agent.Look()
		return look != nil && look.Wall.Sub(begun) > 15*time.Second
	})
	for _, kind := range []string{"/api/v1/nodes", "/apis/slo.koordinator.sh/v1alpha1/nodeslos", "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"} {
		if len(silent.Requests("GET "+kind)) == 0 {
			t.Errorf("the agent without the lock does not follow %s", kind)
		}
	}
	if got := tells(silent); len(got) != 0 {
		t.Errorf("without the lock it has written %v", got)
	}
	if barred.host.Alone() == nil {
		t.Error("it has its lock")
	}
}
