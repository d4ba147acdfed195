// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cri"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// closeWorkers remove pods at once; cleaning is bound by the runtime, not by us.
const closeWorkers = 8

// noTaskMetrics keeps containerd from asking every shim for statistics at each scrape: that would take longer than what
// is measured.
const noTaskMetrics = "version = 3\n[plugins.\"io.containerd.monitor.task.v1.cgroups\"]\nno_prometheus = true\n"

// rig is one containerd with a kubelet before it.
type rig struct {
	host *host.Host
	kube *kubelet.Kubelet
	tree cgroups.Tree
	// calls times the three requests that make a container.
	calls *stopwatch
	// plugins started so far; close ends those that still run.
	plugins []*process
}

// newRig starts a private containerd of the main version.
func newRig(ctx context.Context) (*rig, error) {
	h, err := host.Start(ctx, host.Options{DropIns: map[string]string{"bench.toml": noTaskMetrics}})
	if err != nil {
		return nil, err
	}
	r := &rig{host: h}
	if err := r.prepare(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *rig) prepare(ctx context.Context) (err error) {
	if r.tree, err = cgroups.Detect(); err != nil {
		return err
	}
	client := r.host.CRI()
	r.calls = &stopwatch{RuntimeServiceClient: client.Runtime}
	client.Runtime = r.calls
	r.kube, err = kubelet.New(ctx, kubelet.Options{CRI: client, LogDir: r.host.Logs, Root: r.host.Cgroup})
	return err
}

// close removes pods, plugins and containerd; it does not depend on the context of the run, which may have ended.
func (r *rig) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var errs []error
	for _, p := range r.plugins {
		errs = append(errs, p.stop())
		if p.run != "" {
			errs = append(errs, os.RemoveAll(p.run))
		}
	}
	// What this leaves over, Close removes with the processes and cgroups of the lab's folder.
	_ = removePods(ctx, r.host.CRI())
	return errors.Join(append(errs, r.host.Close())...)
}

// removePods removes every pod of the runtime.
func removePods(ctx context.Context, c *cri.Client) error {
	pods, err := c.Pods(ctx)
	if err != nil {
		return err
	}
	return parallel(ctx, closeWorkers, len(pods), func(ctx context.Context, i int) error {
		if err := c.StopPod(ctx, pods[i].Id); err != nil {
			return err
		}
		return c.RemovePod(ctx, pods[i].Id)
	})
}

// parallel calls f for 0 to n-1 with at most workers at once and stops at the first error.
func parallel(ctx context.Context, workers, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() {
			for i := range next {
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// stopwatch is a CRI client that remembers how long the last call of each kind took; it serves one caller at a time
// where that matters.
type stopwatch struct {
	runtimeapi.RuntimeServiceClient
	mu                    sync.Mutex
	runPod, create, start time.Duration
	// under is how many CreateContainer are under way, peak the most of them since most was asked.
	under, peak int
}

// most is the largest number of CreateContainer under way since it was asked last.
func (s *stopwatch) most() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.peak
	s.peak = s.under
	return out
}

// creating counts a CreateContainer that begins (1) or ends (-1).
func (s *stopwatch) creating(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under += n
	s.peak = max(s.peak, s.under)
}

func (s *stopwatch) took(field *time.Duration, since time.Time) {
	d := time.Since(since)
	s.mu.Lock()
	defer s.mu.Unlock()
	*field = d
}

// RunPodSandbox implements the CRI client.
func (s *stopwatch) RunPodSandbox(ctx context.Context, in *runtimeapi.RunPodSandboxRequest, o ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	defer s.took(&s.runPod, time.Now())
	return s.RuntimeServiceClient.RunPodSandbox(ctx, in, o...)
}

// CreateContainer implements the CRI client.
func (s *stopwatch) CreateContainer(ctx context.Context, in *runtimeapi.CreateContainerRequest, o ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	s.creating(1)
	defer s.creating(-1)
	defer s.took(&s.create, time.Now())
	return s.RuntimeServiceClient.CreateContainer(ctx, in, o...)
}

// StartContainer implements the CRI client.
func (s *stopwatch) StartContainer(ctx context.Context, in *runtimeapi.StartContainerRequest, o ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	defer s.took(&s.start, time.Now())
	return s.RuntimeServiceClient.StartContainer(ctx, in, o...)
}

// wait sleeps unless ctx ends first.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// eventually polls until check succeeds.
func eventually(ctx context.Context, limit, every time.Duration, check func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s: %w", limit, err)
		}
		if err := wait(ctx, every); err != nil {
			return err
		}
	}
}
