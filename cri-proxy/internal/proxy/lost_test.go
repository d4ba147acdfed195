// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/hook/hooktest"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// running is a container that runs, with a quota of 50000.
func (r *rig) running(t *testing.T, name string) string {
	t.Helper()
	sandbox, cfg := r.pod(t, name, "LS", nil)
	reply, err := r.CreateContainer(t.Context(), createOf(sandbox, cfg))
	must(t, err)
	_, err = r.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: reply.ContainerId})
	must(t, err)
	eventually(t, "the burst of the start", r.burst(reply.ContainerId, 50000))
	return reply.ContainerId
}

func (r *rig) base(id string, quota int64) func() bool {
	return func() bool { _, c, _ := r.engine.Known(id); return c.Base.Quota.V == quota }
}

func (r *rig) burst(id string, want int64) func() bool {
	return func() bool {
		n, ok := r.kernel.last(id, plan.CPUBurst)
		return ok && n == want || want == 50000 && !ok // it stands in the request
	}
}

func resize(id string, quota int64) *runtimeapi.UpdateContainerResourcesRequest {
	return &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: quota}}
}

// A runtime that dies over an update may have done it or not: what it says in its next life is what the container has.
func TestUpdateThatTheRuntimeDiesOver(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		applied bool
		quota   int64
	}{"done": {true, 150000}, "not done": {false, 50000}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			id := r.running(t, "resized")
			dead, ended := make(chan struct{}), make(chan struct{})
			defer close(ended)
			die := func() { close(dead); <-ended }
			if tt.applied {
				r.fake.after.Store(&die)
			} else {
				r.fake.before.Store(&die)
			}
			old := r.backend
			go func() { <-dead; old.Stop() }()
			_, err := r.UpdateContainerResources(t.Context(), resize(id, 150000))
			if status.Code(err) != codes.Unavailable {
				t.Errorf("the client got %v", err)
			}
			eventually(t, "the end of the connection", func() bool { return !r.engine.Connected() })
			r.serve(t)
			eventually(t, "the connection", r.engine.Connected)
			eventually(t, "the base that the runtime has", r.base(id, tt.quota))
			eventually(t, "the burst that goes with it", r.burst(id, tt.quota))
			// The next update is taken from there, and nothing is in doubt after it.
			r.fake.before.Store(nil)
			r.fake.after.Store(nil)
			_, err = r.UpdateContainerResources(t.Context(), resize(id, 80000))
			must(t, err)
			eventually(t, "the next base", r.base(id, 80000))
			eventually(t, "the next burst", r.burst(id, 80000))
		})
	}
}

// bothAsked begins two updates, the second when the hook server has been asked about the first.
func (r *rig) bothAsked(t *testing.T, id string, asked <-chan struct{}) (ended [2]chan error) {
	t.Helper()
	for i, quota := range []int64{80000, 150000} {
		ended[i] = make(chan error, 1)
		go func() {
			_, err := r.UpdateContainerResources(t.Context(), resize(id, quota))
			ended[i] <- err
		}()
		<-asked
	}
	return ended
}

// Of two updates that a hook server holds up at once one is done and the other not, which takes none of the first with it: whichever of them began
// earlier, and whether the runtime has refused it or the hook server.
func TestUpdateDuringAHook(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		done     int  // which of the two
		byServer bool // refuses the other one
	}{
		"the later one is done": {1, false}, "the earlier one is done": {0, false},
		"the later one is done, the server refuses": {1, true}, "the earlier one is done, the server refuses": {0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entered, gates := make(chan struct{}), [2]chan error{make(chan error), make(chan error)}
			var calls atomic.Int64
			r := newRig(t, func(c *config.Proxy) {
				_, at := hooktest.Serve(t, "unix", filepath.Join(c.Hooks.Dir, "h.sock"), func(context.Context, string, map[string]any) (map[string]any, error) {
					n := calls.Add(1) - 1
					entered <- struct{}{}
					return nil, <-gates[n]
				})
				hooktest.Register(t, c.Hooks.Dir, "slow", at, "Fail", "PreUpdateContainerResources")
				c.Hooks.Timeout = config.Duration(2 * time.Minute)
			})
			id := r.running(t, "resized")
			ended := r.bothAsked(t, id, entered)
			quota := []int64{80000, 150000}[tt.done]
			gates[tt.done] <- nil
			must(t, <-ended[tt.done])
			r.fake.refuse.Store(true)
			var no error
			if tt.byServer {
				no = errors.New("not this one")
			}
			gates[1-tt.done] <- no
			if err := <-ended[1-tt.done]; err == nil {
				t.Error("nobody has refused")
			}
			r.fake.refuse.Store(false)
			eventually(t, "the base of the update that was done", r.base(id, quota))
			eventually(t, "the burst that goes with it", r.burst(id, quota))
		})
	}
}

// Of two updates that are at the runtime at once, the one that began later and came first is refused, before the other one is done or after it:
// what either was built on is not what the container has, and the runtime is asked.
func TestUpdatesTogetherAtTheRuntime(t *testing.T) {
	t.Parallel()
	for name, refusedFirst := range map[string]bool{"refused before": true, "refused after": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, gates := make(chan struct{}), [2]chan struct{}{make(chan struct{}), make(chan struct{})}
			var calls, reached atomic.Int64
			r := newRig(t, func(c *config.Proxy) {
				_, at := hooktest.Serve(t, "unix", filepath.Join(c.Hooks.Dir, "h.sock"), func(context.Context, string, map[string]any) (map[string]any, error) {
					n := calls.Add(1) - 1
					asked <- struct{}{}
					<-gates[n]
					return nil, nil
				})
				hooktest.Register(t, c.Hooks.Dir, "slow", at, "Ignore", "PreUpdateContainerResources")
				c.Hooks.Timeout = config.Duration(2 * time.Minute)
			})
			id := r.running(t, "resized")
			there, answers := make(chan struct{}), [2]chan struct{}{make(chan struct{}), make(chan struct{})}
			f := func() {
				n := reached.Add(1) - 1
				there <- struct{}{}
				<-answers[n]
			}
			r.fake.before.Store(&f)
			ended := r.bothAsked(t, id, asked)
			for _, i := range []int{1, 0} { // to the runtime
				close(gates[i])
				<-there
			}
			refused := func() {
				r.fake.refuse.Store(true)
				close(answers[0])
				if err := <-ended[1]; err == nil {
					t.Error("the runtime has not refused")
				}
				r.fake.refuse.Store(false)
			}
			if refusedFirst {
				refused()
			}
			close(answers[1])
			must(t, <-ended[0])
			if !refusedFirst {
				refused()
			}
			eventually(t, "the base that the runtime has", r.base(id, 80000))
			eventually(t, "the burst that goes with it", r.burst(id, 80000))
		})
	}
}

// An update that a hook server refuses changes nothing of what is known of the container.
func TestUpdateThatAHookRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *config.Proxy) {
		_, at := hooktest.Serve(t, "unix", filepath.Join(c.Hooks.Dir, "h.sock"), func(context.Context, string, map[string]any) (map[string]any, error) {
			return nil, errors.New("never")
		})
		hooktest.Register(t, c.Hooks.Dir, "no", at, "Fail", "PreUpdateContainerResources")
	})
	id := r.running(t, "resized")
	eventually(t, "its start", func() bool { _, c, _ := r.engine.Known(id); return c.State == workload.StateCreated })
	_, before, _ := r.engine.Known(id)
	if _, err := r.UpdateContainerResources(t.Context(), resize(id, 80000)); err == nil {
		t.Error("it was not refused")
	}
	if _, after, _ := r.engine.Known(id); after != before {
		t.Errorf("%+v became %+v", before, after)
	}
}

// A client that goes while the runtime is at it leaves the runtime at it: what it has is asked more than once.
func TestUpdateThatTheClientLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.running(t, "left")
	entered, gate := make(chan struct{}), make(chan struct{})
	f := func() { close(entered); <-gate }
	r.fake.before.Store(&f)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := r.UpdateContainerResources(ctx, resize(id, 150000))
		ended <- err
	}()
	<-entered
	cancel()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("the client got %v", err)
	}
	eventually(t, "the base that stands so far", r.base(id, 50000))
	close(gate)
	eventually(t, "the base when the runtime has done it", r.base(id, 150000))
	eventually(t, "the burst that goes with it", r.burst(id, 150000))
}

// A removal goes on in the runtime when its client has gone, and nobody asks for it again.
func TestRemovalThatTheClientLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.running(t, "removed")
	pod, _, _ := r.engine.Known(id)
	leave := func(call func(ctx context.Context) error) {
		t.Helper()
		entered, gate := make(chan struct{}), make(chan struct{})
		f := func() { close(entered); <-gate }
		r.fake.removing.Store(&f)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- call(ctx) }()
		<-entered
		cancel()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("the client got %v", err)
		}
		close(gate)
	}
	leave(func(ctx context.Context) error {
		_, err := r.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
		return err
	})
	eventually(t, "the container is forgotten", func() bool { _, _, known := r.engine.Known(id); return !known })
	leave(func(ctx context.Context) error {
		_, err := r.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod.ID})
		return err
	})
	eventually(t, "the pod is forgotten", func() bool { _, known := r.engine.KnownPod(pod.ID); return !known })
}

// stop ends the relay without any grace and tells whether it has ended in a minute.
func (r *rig) stop(t *testing.T) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.server.Shutdown(ctx) // cuts what is left
		r.server.Wait()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("the relay does not end")
	}
}

// The end does not wait for an answer of the runtime about a start that was cut.
func TestEndDuringAQuestion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sandbox, cfg := r.pod(t, "cut", "BE", nil)
	reply, err := r.CreateContainer(t.Context(), createOf(sandbox, cfg))
	must(t, err)
	entered, gate, asked := make(chan struct{}), make(chan struct{}), make(chan struct{})
	defer close(gate)
	starting := func(context.Context) { close(entered); <-gate }
	r.fake.starting.Store(&starting)
	var once sync.Once
	question := func(ctx context.Context) {
		once.Do(func() { close(asked) })
		<-ctx.Done() // the runtime hangs
	}
	r.fake.asked.Store(&question)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	if _, err := r.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: reply.ContainerId}); status.Code(err) != codes.Canceled {
		t.Errorf("the client got %v", err)
	}
	<-asked
	questions := func() int { r.fake.mu.Lock(); defer r.fake.mu.Unlock(); return r.fake.statuses }
	before := questions() // one, or more where the machine has stood still since
	r.stop(t)
	// Each question has a limit of two seconds of its own, and three are asked: the end was not theirs.
	if after := questions(); after > before {
		t.Errorf("the runtime was asked %d times, %d of them before the end", after, before)
	}
}

// The end does not wait for a hook server that hangs after the runtime has done its part.
func TestEndDuringAHook(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	r := newRig(t, func(c *config.Proxy) {
		_, at := hooktest.Serve(t, "unix", filepath.Join(c.Hooks.Dir, "h.sock"), func(ctx context.Context, _ string, _ map[string]any) (map[string]any, error) {
			close(entered)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		hooktest.Register(t, c.Hooks.Dir, "slow", at, "Ignore", "PostStartContainer")
		c.Hooks.Timeout = config.Duration(2 * time.Minute)
	})
	sandbox, cfg := r.pod(t, "told", "LS", nil)
	reply, err := r.CreateContainer(t.Context(), createOf(sandbox, cfg))
	must(t, err)
	_, err = r.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: reply.ContainerId})
	must(t, err)
	<-entered
	r.stop(t)
}
