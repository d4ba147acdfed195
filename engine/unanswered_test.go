// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// counting counts what is written, or looked at, to that end.
type counting struct {
	engine.Kernel
	n atomic.Int64
}

// Apply implements engine.Kernel.
func (k *counting) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	k.n.Add(1)
	return k.Kernel.Apply(ctx, p, gen)
}

// passes waits until looks against drift that begin from now on have ended: one is of the container, and of its pod perhaps.
func (k *counting) passes(t *testing.T) {
	t.Helper()
	from := k.n.Load()
	enginetest.Eventually(t, "looks against drift", func() bool { return k.n.Load() >= from+8 })
}

const mib = 1 << 20

// bursting is a container c1 with limits of two CPUs and 100 MiB that runs at dir, when its burst stands.
func (r *rig) bursting(t *testing.T) (sb engine.Sandbox, dir string, burst func() string) {
	t.Helper()
	sb, dir = r.pod(t, nil), "/kubepods/burstable/podu/new"
	r.tree.Mkdir(t, dir)
	r.tree.Set(t, dir, "cpu.max", "200000 100000")
	r.tree.Set(t, dir, "memory.max", "104857600")
	r.tree.Set(t, dir, "cpu.weight", "39")
	c := container()
	c.ID, c.State, c.Base.MemoryLimit = "c1", workload.StateRunning, unit.Some(100*mib)
	r.Add([]*workload.Pod{sb.Read()}, []engine.Listed{{Sandbox: "s", Arrival: engine.Arrival{ID: "c1",
		Read: func(...*protocol.Applied) *workload.Container { return c }}}})
	burst = func() string { return r.tree.Get(t, dir, "cpu.max.burst") }
	enginetest.Eventually(t, "the burst", func() bool { return burst() == "200000" })
	return sb, dir, burst
}

// An update that the runtime has refused, which NRI does not tell, is taken back minutes later by what the kernel shows, and the burst that
// fell for it rises again; one that was done stays, told or not.
func TestUpdateThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	quota := func(n int64) workload.Resources { return workload.Resources{Quota: unit.Some(n)} }
	for name, c := range map[string]struct {
		updates []workload.Resources
		told    int // how many of them the runtime has said to have written
		// what the kernel shows then: µs per 100 ms, bytes, shares as a weight
		quota, memory, weight string
		wantQuota, wantMemory int64
		wantShares            int64
	}{
		"refused":           {[]workload.Resources{quota(100000)}, 0, "200000", "104857600", "39", 200000, 100 * mib, 1024},
		"done and told":     {[]workload.Resources{quota(100000)}, 1, "100000", "104857600", "39", 100000, 100 * mib, 1024},
		"told, and changed": {[]workload.Resources{quota(100000)}, 1, "200000", "104857600", "39", 100000, 100 * mib, 1024},
		"done and not told": {[]workload.Resources{quota(100000)}, 0, "100000", "104857600", "39", 100000, 100 * mib, 1024},
		"somebody else's":   {[]workload.Resources{quota(100000)}, 0, "150000", "104857600", "39", 100000, 100 * mib, 1024},
		"two refused":       {[]workload.Resources{quota(100000), quota(90000)}, 0, "200000", "104857600", "39", 200000, 100 * mib, 1024},
		"refused, and again": {
			[]workload.Resources{{Quota: unit.Some(100000), Shares: unit.Some(2048)}, {Quota: unit.Some(100000), Shares: unit.Some(2048)}},
			0, "200000", "104857600", "55", 200000, 100 * mib, 1024,
		},
		"refused, then one that changes nothing": {
			[]workload.Resources{{MemoryLimit: unit.Some(50 * mib)}, quota(200000)}, 1, "200000", "104857600", "39", 200000, 100 * mib, 1024,
		},
		"refused, then done": {[]workload.Resources{{MemoryLimit: unit.Some(50 * mib)}, quota(100000)}, 1, "100000", "104857600", "39", 100000, 100 * mib, 1024},
		"done, then refused": {[]workload.Resources{quota(100000), {MemoryLimit: unit.Some(50 * mib)}}, 1, "100000", "104857600", "39", 100000, 100 * mib, 1024},
		"done by half": {
			[]workload.Resources{{Quota: unit.Some(100000), MemoryLimit: unit.Some(50 * mib)}}, 0, "100000", "104857600", "39", 100000, 100 * mib, 1024,
		},
		"two, of which one tells nothing": {
			[]workload.Resources{quota(100000), {MemoryLimit: unit.Some(50 * mib)}}, 0, "150000", "104857600", "39", 100000, 100 * mib, 1024,
		},
		"one of two things that tells nothing": {
			[]workload.Resources{{Quota: unit.Some(100000), Shares: unit.Some(2048)}}, 0, "200000", "104857600", "55", 200000, 100 * mib, 1024,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ahead atomic.Int64
			var k *counting
			r := newRig(t, 0, func(o *engine.Options) {
				k = &counting{Kernel: o.Kernel}
				o.Kernel, o.Drift, o.UpdatesAwaited = k, 10*time.Millisecond, true
				o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			})
			sb, dir, burst := r.bursting(t)
			for i, u := range c.updates {
				r.Update(t.Context(), sb, engine.Arrival{ID: "c1"}, u, nil)
				if i >= len(c.updates)-c.told { // the last ones
					r.tree.Set(t, dir, "cpu.max", c.quota+" 100000")
					r.Updated(t.Context(), "c1")
				}
			}
			r.tree.Set(t, dir, "cpu.max", c.quota+" 100000")
			r.tree.Set(t, dir, "memory.max", c.memory)
			r.tree.Set(t, dir, "cpu.weight", c.weight)
			base := func() workload.Resources { _, c, _ := r.Known("c1"); return c.Base }
			believed := base()
			ahead.Store(int64(4 * time.Minute)) // the kubelet waits two
			k.passes(t)
			if now := base(); now.Quota != believed.Quota || now.MemoryLimit != believed.MemoryLimit {
				t.Errorf("after four minutes %+v became %+v", believed, now)
			}
			ahead.Store(int64(6 * time.Minute))
			k.passes(t)
			if now := base(); now.Quota.V != c.wantQuota || now.MemoryLimit.V != c.wantMemory || now.Shares.V != c.wantShares {
				t.Errorf("base %+v, want quota %d, memory %d and shares %d", now, c.wantQuota, c.wantMemory, c.wantShares)
			}
			enginetest.Eventually(t, "the burst that goes with it", func() bool { return burst() == strconv.FormatInt(c.wantQuota, 10) })
		})
	}
}

// What has gone from the strategy is taken back, also by the pass that takes an update back.
func TestRefusedUpdateLeavesNothing(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	r := newRig(t, 0, func(o *engine.Options) {
		o.Drift, o.UpdatesAwaited = 300*time.Millisecond, true
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	sb, dir, burst := r.bursting(t)
	r.Update(t.Context(), sb, engine.Arrival{ID: "c1"}, workload.Resources{MemoryLimit: unit.Some(50 * mib)}, nil) // refused
	r.Update(t.Context(), sb, engine.Arrival{ID: "c1"}, workload.Resources{Quota: unit.Some(100000)}, nil)
	r.tree.Set(t, dir, "cpu.max", "100000 100000")
	r.Updated(t.Context(), "c1")
	enginetest.Eventually(t, "the lower burst", func() bool { return burst() == "100000" && r.Idle() })
	r.Views().OnChange(func(bool) {}) // so that the look against drift is the first to see it
	ahead.Store(int64(6 * time.Minute))
	r.Views().SetFile(&strategy.Spec{}, "test")
	enginetest.Eventually(t, "no burst", func() bool { return burst() == "0" })
	if _, c, _ := r.Known("c1"); c.Base.MemoryLimit.V != 100*mib {
		t.Errorf("memory %d", c.Base.MemoryLimit.V)
	}
}
