// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// A kubelet starts a container the moment it has the reply to its creation. The proxy must know it by then.
func TestStartRightAfterCreate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 200 {
		name := "p" + strings.Repeat("x", i)
		sandbox, cfg := r.pod(t, name, "LS", nil)
		reply, err := r.CreateContainer(t.Context(), createOf(sandbox, cfg))
		must(t, err)
		_, err = r.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: reply.ContainerId})
		must(t, err)
		if _, c, known := r.engine.Known(reply.ContainerId); !known || c.Cgroup != "/kubepods/burstable/pod"+name+"/"+reply.ContainerId {
			t.Fatalf("round %d: known %v: %+v", i, known, c)
		}
	}
	for _, c := range r.fake.created() {
		m, err := protocol.ParseApplied(c.Config.Annotations[protocol.AnnotationApplied])
		if err != nil || m.By != "koord-runtime-proxy/test" || c.Config.Linux.Resources.Unified["cpu.max.burst"] != "50000" {
			t.Fatalf("request without our plan: %v, %v", c.Config.Annotations, err)
		}
	}
}

// What the request could not carry is written after the start, and how long that takes is measured: once a start, and not where
// the request carries all.
func TestAfterStartIsMeasured(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i, qos := range []string{"BE", "LS", "BE"} {
		sandbox, cfg := r.pod(t, "p"+strconv.Itoa(i), qos, nil)
		reply, err := r.CreateContainer(t.Context(), createOf(sandbox, cfg))
		must(t, err)
		_, err = r.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: reply.ContainerId})
		must(t, err)
		want := uint64(i/2 + 1)
		eventually(t, "the proof", func() bool {
			return r.events(t, "PostStartContainer") == uint64(i+1) && r.afterStart(t) == want
		})
	}
}

// A start whose answer is lost, because the kubelet has gone, may have happened all the same: what the request could not
// carry is written when the runtime says so.
func TestLostStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sandbox, cfg := r.pod(t, "lost", "BE", nil)
	reply, err := r.CreateContainer(t.Context(), createOf(sandbox, cfg))
	must(t, err)
	entered, gate := make(chan struct{}), make(chan struct{})
	f := func(ctx context.Context) {
		close(entered)
		<-ctx.Done() // the proxy has heard that the kubelet has gone: an answer before that would be measured
		<-gate
	}
	r.fake.starting.Store(&f)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := r.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: reply.ContainerId})
		ended <- err
	}()
	<-entered
	cancel()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("the client got %v", err)
	}
	if _, ok := r.kernel.last(reply.ContainerId, plan.SchedPolicy); ok {
		t.Error("written although the runtime has not started it")
	}
	close(gate)
	eventually(t, "the direct write", func() bool { n, ok := r.kernel.last(reply.ContainerId, plan.SchedPolicy); return ok && n == 5 })
	eventually(t, "the end of the event", func() bool { return r.events(t, "PostStartContainer") == 1 })
	if n := r.afterStart(t); n != 0 {
		t.Errorf("%d starts are measured, and nobody knows when the runtime answered", n)
	}
}

// A decision that comes after its deadline leaves the request as it came, says so, and is made up for by direct writes.
func TestLateDecision(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *config.Proxy) { c.Deadline = config.Duration(time.Second) }) // which the pod's own decision must keep
	gate := make(chan struct{})
	f := func() { <-gate }
	r.inDecision.Store(&f)
	id, _ := r.wantsIdentity(t, "late")
	raw := r.fake.created()[0]
	if raw.Config.Annotations[protocol.AnnotationApplied] != "" || raw.Config.Linux.Resources.Unified != nil {
		t.Errorf("the late plan stands in the request: %v", raw.Config)
	}
	if n := r.counted(t, "koord_rt_cri_fail_open_total", "deadline"); n != 1 {
		t.Errorf("%v late decisions are counted", n)
	}
	eventually(t, "a record of the late decision", func() bool { return r.book.problem("late: the request went on as it came") })
	_, err := r.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
	must(t, err)
	close(gate)
	eventually(t, "the direct write", func() bool { n, ok := r.kernel.last(id, plan.OOMScoreAdj); return ok && n == 900 })
	eventually(t, "the end of the pending entry", func() bool { return !r.creating() })
	if _, c, known := r.engine.Known(id); !known || c.State == workload.StateCreating {
		t.Errorf("known %v: %+v", known, c)
	}
}

// A decision that panics does the same.
func TestPanickingDecision(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := func() { panic("test") }
	r.inDecision.Store(&f)
	id, _ := r.wantsIdentity(t, "panics")
	if raw := r.fake.created()[0]; raw.Config.Annotations[protocol.AnnotationApplied] != "" {
		t.Errorf("part of the plan stands in the request: %v", raw.Config)
	}
	if n := r.counted(t, "koord_rt_cri_fail_open_total", "panic"); n != 1 {
		t.Errorf("%v panics are counted", n)
	}
	eventually(t, "a record of the panic", func() bool { return r.book.problem("panicked: the request went on as it came") })
	r.inDecision.Store(nil)
	_, err := r.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
	must(t, err)
	eventually(t, "the direct write", func() bool { n, ok := r.kernel.last(id, plan.OOMScoreAdj); return ok && n == 900 })
}

// wantsIdentity creates a container of a pod that demands a scheduling policy, which no request carries; the plugin beside
// us would set it.
func (r *rig) wantsIdentity(t *testing.T, name string) (id, sandbox string) {
	t.Helper()
	r.plugin.Store(true)
	sandbox, cfg := r.pod(t, name, "BE", map[string]string{
		protocol.AnnotationRequired: "cpu-identity", "koordinator.sh/oom-score-adj": "900",
	})
	reply, err := r.CreateContainer(t.Context(), createOf(sandbox, cfg))
	must(t, err)
	return reply.ContainerId, sandbox
}

// creating reports whether containers without an id are known.
func (r *rig) creating() bool {
	return r.engine.Status().Counters["containers"] > uint64(len(r.engine.IDs()))
}

// A demanded guarantee that would come after the first instruction is a refusal, and nothing of the container stays.
func TestRequiredButLate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sandbox, cfg := r.pod(t, "refused", "BE", map[string]string{protocol.AnnotationRequired: "cpu-identity"})
	_, err := r.CreateContainer(t.Context(), createOf(sandbox, cfg))
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "sched.policy (cpu-identity)") {
		t.Errorf("got %v", err)
	}
	if len(r.fake.created()) != 0 || r.creating() {
		t.Error("the refused container exists")
	}
}

// A demanded guarantee that the request carried and the kernel does not show ends the container.
func TestRequiredButNotInForce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.kernel.mu.Lock()
	r.kernel.differ = true
	r.kernel.mu.Unlock()
	sandbox, cfg := r.pod(t, "drifts", "LS", map[string]string{protocol.AnnotationRequired: "cpu-burst"})
	reply, err := r.CreateContainer(t.Context(), createOf(sandbox, cfg))
	must(t, err)
	_, err = r.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: reply.ContainerId})
	must(t, err)
	eventually(t, "the stop", func() bool {
		r.fake.mu.Lock()
		defer r.fake.mu.Unlock()
		return slices.Contains(r.fake.stops, reply.ContainerId)
	})
}

// An update that the runtime has refused is not what the container has.
func TestRefusedUpdate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sandbox, cfg := r.pod(t, "resize", "LS", nil)
	reply, err := r.CreateContainer(t.Context(), createOf(sandbox, cfg))
	must(t, err)
	id := reply.ContainerId
	_, err = r.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
	must(t, err)
	eventually(t, "the start", func() bool { _, c, _ := r.engine.Known(id); return c.State != workload.StateCreating })
	update := &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 150000}}
	r.fake.refuse.Store(true)
	if _, err := r.UpdateContainerResources(t.Context(), update); status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v, want the runtime's own error", err)
	}
	base := func(quota int64) func() bool {
		return func() bool { _, c, _ := r.engine.Known(id); return c.Base.Quota.V == quota }
	}
	eventually(t, "the return to the old base", base(50000))
	eventually(t, "the old burst", func() bool { n, ok := r.kernel.last(id, plan.CPUBurst); return ok && n == 50000 })
	r.fake.refuse.Store(false)
	_, err = r.UpdateContainerResources(t.Context(), update)
	must(t, err)
	eventually(t, "the new base", base(150000))
	eventually(t, "the new burst", func() bool { n, ok := r.kernel.last(id, plan.CPUBurst); return ok && n == 150000 })
}

// While the plugin is there an update goes on as it came.
func TestUpdateBesideThePlugin(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sandbox, cfg := r.pod(t, "beside", "LS", nil)
	reply, err := r.CreateContainer(t.Context(), createOf(sandbox, cfg))
	must(t, err)
	for _, plugin := range []bool{true, false} {
		r.plugin.Store(plugin)
		_, err := r.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: reply.ContainerId, Linux: &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 80000},
		})
		must(t, err)
		r.fake.mu.Lock()
		last := r.fake.updates[len(r.fake.updates)-1]
		r.fake.mu.Unlock()
		if ours := last.Linux.Unified["cpu.max.burst"] != ""; ours == plugin {
			t.Errorf("plugin %v: the runtime got %v", plugin, last)
		}
	}
}
