// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/koordlet/internal/evict"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube/kubetest"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	policy "github.com/koord-rt/koord-rt/policy/evict"
)

// stopper is a runtime that stops the one container that it has, a real process.
type stopper struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	process *os.Process
	asked   atomic.Pointer[runtimeapi.StopContainerRequest]
}

func (s *stopper) StopContainer(_ context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	s.asked.Store(r)
	if err := s.process.Kill(); err != nil {
		return nil, err
	}
	_, err := s.process.Wait()
	return &runtimeapi.StopContainerResponse{}, err
}

// sleeper is a process in a cgroup of its own on the running kernel.
func sleeper(t *testing.T) (path string, p *os.Process, h *evict.Hands, d *Daemon) {
	t.Helper()
	version, hierarchies := kerneltest.Hierarchies(t)
	path = "/koord-rt-stop-" + strconv.Itoa(os.Getpid())
	t.Cleanup(func() {
		for _, dir := range hierarchies {
			if err := unix.Rmdir(dir + path); err != nil && !errors.Is(err, unix.ENOENT) {
				t.Errorf("remove %s%s: %v", dir, path, err)
			}
		}
	})
	for _, dir := range hierarchies {
		kerneltest.Permitted(t, os.Mkdir(dir+path, 0o755), unix.CAP_DAC_OVERRIDE)
	}
	p, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill()    // it has ended where the test has gone well
		_, _ = p.Wait() // the same
	})
	for _, dir := range hierarchies {
		// A new v1 cpuset takes no process, and none is needed there.
		if err := root.Write(dir+path+"/cgroup.procs", strconv.Itoa(p.Pid)); err != nil && filepath.Base(dir) != "cpuset" {
			t.Fatal(err)
		}
	}
	d = &Daemon{cfg: off()}
	d.cfg.Host.CgroupRoot = root.Default().Cgroup
	if h, err = d.newHands(version); err != nil {
		t.Fatal(err)
	}
	return path, p, h, d
}

// TestStopPastTheAPIServer: memory is in danger and the API server does not answer, so the victim's container is stopped by CRI, and
// it counts as stopped when the kernel has no process of it any more.
func TestStopPastTheAPIServer(t *testing.T) {
	t.Parallel()
	path, process, hands, d := sleeper(t)
	runtime := &stopper{process: process}
	socket := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, runtime)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	if d.list, err = cri.NewLister("unix://" + socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.list.Close() })
	hands.Bodies = func(string) []evict.Body { return []evict.Body{{Cgroup: path, Containers: []string{"c1"}}} }

	api := kubetest.New(t)
	client, err := kube.New(kube.Config{Server: api.URL, Trust: api.Trust})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	api.Down(true)
	known := make(chan struct{}, 1)
	keeper := pods.New(pods.Options{
		Follow: func(ctx context.Context, sink *pods.APISink) error {
			sink.Begin()
			sink.Object([]byte(`{"metadata":{"uid":"u","namespace":"batch","name":"a"},"spec":{"terminationGracePeriodSeconds":3},"status":{"phase":"Running"}}`))
			sink.End()
			sink.State(nil)
			<-ctx.Done()
			return nil
		},
		OnChange: func(*pods.Snapshot) { known <- struct{}{} },
	})
	results := make(chan evict.Result, 8)
	x, err := evict.New(evict.Options{
		API: client, Hands: hands, Stops: evict.StopDanger, Pods: keeper.Snapshot, Clock: boot, Node: "node-1",
		OnResult: func(r evict.Result) { results <- r },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- keeper.Run(ctx) }()
	<-known
	go func() { ended <- x.Run(ctx) }()
	if alive, known := hands.Alive("u"); !alive || !known {
		t.Errorf("the process does not show: %v, %v", alive, known)
	}
	x.Follow(&policy.Output{
		Evictions: []policy.Eviction{{Pod: "u", Namespace: "batch", Name: "a", Feature: policy.BEMemoryEvict, Reason: "memory"}},
		Decisions: []policy.Decision{{Feature: policy.BEMemoryEvict, Rest: policy.Needed}},
	})
	r := <-results
	if asked := runtime.asked.Load(); asked == nil || asked.ContainerId != "c1" || asked.Timeout != 3 {
		t.Errorf("the runtime was asked for %v", asked)
	}
	if alive, known := hands.Alive("u"); alive || !known {
		t.Errorf("a process is left: %v, %v", alive, known)
	}
	if r.Outcome != evict.Stopped || r.Err == nil || strings.Contains(r.Err.Error(), "no API server") {
		t.Errorf("%s, %v", r.Outcome, r.Err)
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
