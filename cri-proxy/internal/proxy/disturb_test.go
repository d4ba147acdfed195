// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// shares reports whether the kernel was given the shares that a pod's container asks for.
func (k *fakeKernel) shares(pod string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.written, func(s plan.Setting) bool {
		return s.Target.Level == plan.LevelPod && s.Target.Pod == pod && s.Knob == plan.CPUShares && s.Value.Int() == 512
	})
}

// punctual sleeps for d, and again while it is woken late: a job's timer may be as late then.
func punctual(d time.Duration) {
	late := d
	for i := 0; i < 20 && late > d/10; i++ {
		begun := time.Now()
		time.Sleep(d)
		late = time.Since(begun) - d
	}
}

// The pod's cgroup, which comes to its place some 10 ms after it was asked for, is not written while the runtime is at work on the
// creation that asks: that takes about as long. The answer brings it, also where the background job is stuck.
func TestCreateIsNotDisturbed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	undisturbed := 0
	for i := 0; i < 10 || undisturbed == 0 && i < 300; i++ { // one of them must be quick
		punctual(70 * time.Millisecond) // until no job waits: the oldest waits 50 ms at most
		name, begun := fmt.Sprintf("p%d", i), time.Now()
		id, cfg := r.pod(t, name, "BE", batch)
		during, idle := false, time.Duration(0) // how long the pod's job may have seen no call
		at := func() {
			idle = time.Since(begun)
			time.Sleep(20 * time.Millisecond)
			during = r.kernel.shares(name)
		}
		r.fake.creating.Store(&at)
		_, err := r.CreateContainer(t.Context(), createOf(id, cfg))
		must(t, err)
		switch {
		case time.Since(begun) > 40*time.Millisecond || idle >= 10*time.Millisecond: // the machine is too busy: the job's turn has come
		case during:
			t.Errorf("%s: its cgroup was written during the call", name)
		default:
			undisturbed++
		}
		eventually(t, "the pod's shares", func() bool { return r.kernel.shares(name) })
	}
	if undisturbed == 0 {
		t.Error("no creation was quick enough to tell")
	}
	r.fake.creating.Store(nil)

	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	r.engine.RunPodLater(engine.Sandbox{ID: "slow", Read: func() *workload.Pod { <-stuck; return &workload.Pod{ID: "slow", UID: "slow"} }})
	time.Sleep(100 * time.Millisecond) // until the job has begun
	id, cfg := r.pod(t, "last", "BE", batch)
	_, err := r.CreateContainer(t.Context(), createOf(id, cfg))
	must(t, err)
	eventually(t, "the last pod's shares", func() bool { return r.kernel.shares("last") })
}
