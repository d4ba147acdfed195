// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// gate is a kernel whose first write to a pod's cgroup waits until it is opened.
type gate struct {
	engine.Kernel
	once  sync.Once
	atPod atomic.Bool
	open  chan struct{}
}

// Apply implements engine.Kernel.
func (k *gate) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	if p[0].Target.Level == plan.LevelPod {
		k.once.Do(func() {
			k.atPod.Store(true)
			<-k.open
		})
	}
	return k.Kernel.Apply(ctx, p, gen)
}

// A container that another life has made starts while the repair of this one, which has decided it, is still at its pod: the repair
// leaves it to its start, and that writes what the specification does not carry.
func TestStartBesideARepair(t *testing.T) {
	t.Parallel()
	k := &gate{open: make(chan struct{})}
	r := newRig(t, 0, func(o *engine.Options) { k.Kernel, o.Kernel = o.Kernel, k })
	pod, ctr := neighbour(t, r, "ours")
	pod.Base.Quota = unit.Some(200000) // it has a burst, too
	r.tree.Set(t, pod.Cgroup, "cpu.max", "200000 100000")
	ctr.Read().State = workload.StateCreated
	ctr.Read().Applied = &protocol.Applied{Generation: 9, By: "koord-nri/1", Set: map[string]string{"cpu.shares": "2 cpu-identity"}}
	r.Synchronize([]*workload.Pod{pod}, []engine.Listed{ctr})
	enginetest.Eventually(t, "the repair at the pod", k.atPod.Load)
	opened := sync.OnceFunc(func() { close(k.open) })
	defer opened() // the engine ends after it
	if err := r.Start(t.Context(), engine.Sandbox{ID: pod.ID, Read: func() *workload.Pod { return pod }}, ctr.Arrival, 0, ""); err != nil {
		t.Fatal(err)
	}
	if got := r.tree.Get(t, pod.Cgroup+"/c", "cpu.max.burst"); got != "200000" {
		t.Errorf("cpu.max.burst after the start is %q, want 200000", got)
	}
	opened()
	enginetest.Eventually(t, "end of the repair", r.Idle)
	if got := r.tree.Get(t, pod.Cgroup+"/c", "cpu.max.burst"); got != "200000" {
		t.Errorf("cpu.max.burst after the repair is %q, want 200000", got)
	}
}
