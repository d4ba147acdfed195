// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// barrier is a kernel whose writes, once it is closed, wait until it is opened.
type barrier struct {
	engine.Kernel
	mu      sync.Mutex
	waiting atomic.Int64
	units   atomic.Bool // the bus waits, too
}

// Apply implements engine.Kernel.
func (k *barrier) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	k.pass()
	return k.Kernel.Apply(ctx, p, gen)
}

func (k *barrier) pass() {
	k.waiting.Add(1)
	defer k.waiting.Add(-1)
	k.mu.Lock()
	defer k.mu.Unlock()
}

// SyncUnits implements engine.Kernel.
func (k *barrier) SyncUnits(_ context.Context, p plan.Plan, _ uint64) []apply.Result {
	if k.units.Load() {
		k.pass()
	}
	return make([]apply.Result, len(p))
}

// Each loop that hangs for longer than any work takes is named, and none is once it goes on. One that waits for work does not hang,
// however long.
func TestStuck(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]func(*testing.T, *rig, *barrier){
		"jobs": func(_ *testing.T, r *rig, k *barrier) { r.Later(k.pass) },
		"repair": func(t *testing.T, r *rig, k *barrier) {
			pod, c := neighbour(t, r, "web")
			r.Add([]*workload.Pod{pod}, []engine.Listed{c})
		},
		"units": func(t *testing.T, r *rig, k *barrier) {
			k.units.Store(true)
			r.Mended([]apply.Result{{Outcome: apply.Written, Setting: plan.Setting{
				Target: plan.Target{Level: plan.LevelPod, Cgroup: "/kubepods.slice/kubepods-podx.slice"}, Knob: plan.MemoryLow, Value: plan.Int(1),
			}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &barrier{}
			var passed atomic.Int64
			began := time.Now()
			r := newRig(t, 0, func(o *engine.Options) {
				k.Kernel, o.Kernel = o.Kernel, k
				o.Now = func() time.Time { return began.Add(time.Duration(passed.Load())) }
				m := enginetest.New(t, "6.12")
				s := m.Static(t, plan.CPUBurst, plan.CPUQuota, plan.CPUPeriod)
				s.Kernel.Systemd = true
				o.Views.SetStatic(s)
			})
			later := func() { passed.Add(int64(2 * time.Minute)) }
			answered := func() {
				must(t, r.Stuck())
				enginetest.Eventually(t, "answer", func() bool { return r.Idle() })
			}
			answered()
			later()
			answered() // they wait for work
			k.mu.Lock()
			hang(t, r, k)
			enginetest.Eventually(t, "a loop at work", func() bool { return k.waiting.Load() > 0 })
			if err := r.Stuck(); err != nil {
				t.Errorf("at once: %v", err)
			}
			later()
			enginetest.Eventually(t, "after two minutes "+name, func() bool { // the work that a question makes may have been under way, too
				err := r.Stuck()
				return err != nil && strings.Contains(err.Error(), name)
			})
			k.mu.Unlock()
			enginetest.Eventually(t, "going on", func() bool { return r.Idle() && r.Stuck() == nil }) // to ask makes work
			enginetest.Eventually(t, "answer", r.Idle)
			later()
			must(t, r.Stuck())
		})
	}
}

// What events have left for later is done before the quiet moment is told.
func TestQuiet(t *testing.T) {
	t.Parallel()
	var done, told atomic.Int64
	r := newRig(t, 0, func(o *engine.Options) {
		o.Quiet = func() { told.CompareAndSwap(0, done.Load()) }
	})
	r.Later(func() { // one run has both
		for range 2 {
			r.Later(func() { done.Add(1) })
		}
	})
	enginetest.Eventually(t, "a quiet moment", func() bool { return told.Load() > 0 })
	if n := told.Load(); n != 2 {
		t.Errorf("told when %d of 2 jobs were done", n)
	}
}
