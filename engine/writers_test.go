// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// dawdling is a kernel that holds a write of a container's burst up.
type dawdling struct {
	engine.Kernel
	mu    sync.Mutex
	holds int64         // the burst that is held up, once
	at    bool          // somebody is about to write it
	on    chan struct{} // lets him
}

// hold has the next write of a burst held up.
func (k *dawdling) hold(burst int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holds, k.at, k.on = burst, false, make(chan struct{})
}

func (k *dawdling) reached() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at
}

// Apply implements engine.Kernel.
func (k *dawdling) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	burst := int64(-1)
	for i := range p {
		if p[i].Knob == plan.CPUBurst && p[i].Target.Level == plan.LevelContainer {
			burst = p[i].Value.Int()
		}
	}
	k.mu.Lock()
	held := burst >= 0 && burst == k.holds
	if held {
		k.holds, k.at = 0, true
	}
	on := k.on
	k.mu.Unlock()
	if held {
		<-on
	}
	return k.Kernel.Apply(ctx, p, gen)
}

// An update's smaller burst stands when it is answered, whoever was writing the larger one until then: the runtime's write of the smaller
// quota, which follows, is refused else. Over CRI it may come while a start is still being worked off.
func TestUpdateComesLast(t *testing.T) {
	t.Parallel()
	const quota, less = 200000, 100000
	id := container().ID
	for name, old := range map[string]func(*testing.T, *unborn, *dawdling){
		"while its start is worked off": func(t *testing.T, u *unborn, k *dawdling) {
			k.hold(quota)
			u.start(t)
		},
		"while a repair is at it": func(t *testing.T, u *unborn, k *dawdling) {
			u.start(t)
			enginetest.Eventually(t, "the repair of the start", func() bool { return u.burst(t) == "200000" })
			u.tree.Set(t, u.dir, "cpu.cfs_burst_us", "0") // a hand
			k.hold(quota)
			u.Repair()
		},
		"while its burst is written before it starts": func(_ *testing.T, u *unborn, k *dawdling) {
			k.hold(quota)
			u.call()
		},
		"while another one lowers it": func(t *testing.T, u *unborn, k *dawdling) {
			u.start(t)
			k.hold(less + 50000)
			u.update(t, less+50000)
		},
		"while an update is worked off": func(t *testing.T, u *unborn, k *dawdling) {
			u.start(t)
			k.hold(3 * quota)
			u.update(t, 3*quota)
			u.tree.Set(t, u.dir, "cpu.cfs_quota_us", "600000")
			u.Updated(t.Context(), id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &dawdling{}
			u := newUnborn(t, func(o *engine.Options) { k.Kernel, o.Kernel = o.Kernel, k })
			u.born(t, "200000")
			done := make(chan struct{})
			go func() {
				defer close(done)
				old(t, u, k)
			}()
			enginetest.Eventually(t, "the write of the larger burst", k.reached)
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				u.update(t, less)
			}()
			select {
			case <-answered:
				t.Error("answered while somebody is about to write the larger burst")
			case <-time.After(100 * time.Millisecond):
			}
			close(k.on)
			<-answered
			if got := u.burst(t); got != "100000" {
				t.Errorf("answered, and the burst is %s", got)
			}
			<-done
		})
	}
}

func (u *unborn) update(t *testing.T, quota int64) {
	t.Helper()
	u.Update(t.Context(), u.sandbox, engine.Arrival{ID: container().ID}, workload.Resources{Quota: unit.Some(quota)}, nil)
}

// Who is at a container for longer than a handler may wait does not keep the burst from falling before the reply.
func TestUpdateDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	k := &dawdling{}
	u := newUnborn(t, func(o *engine.Options) {
		k.Kernel, o.Kernel = o.Kernel, k
		o.Config.Deadline = config.Duration(100 * time.Millisecond)
	})
	u.born(t, "200000")
	k.hold(200000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		u.start(t)
	}()
	enginetest.Eventually(t, "the start's write", k.reached)
	u.update(t, 100000) // returns
	close(k.on)
	<-done
	enginetest.Eventually(t, "the smaller burst", func() bool { return u.burst(t) == "100000" })
}
