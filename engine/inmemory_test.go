// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// An update at which nothing has to fall, be measured or be recorded is answered out of memory; deciding it calls the kernel for nothing in any case.
func TestResizeInMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		quota        int64
		told, memory bool
		spec         bool
	}{
		"larger":                             {quota: 90000, told: true, memory: true},
		"smaller: the burst falls before it": {quota: 20000, told: true},
		"larger, and the pod's is not told":  {quota: 90000},
		"larger, and the answer is recorded": {quota: 90000, told: true, spec: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, k, sandbox, arrival := resized(t, 60000, leftOf(lsr("one").Target(), plan.CPUBurst, 50000, 0, protocol.FeatureBurst.String()))
			g.settleAll(t.Context())
			g.reg.changePod(sandbox.ID, func(e *podEntry) { e.told = c.told })
			var foreign plan.Plan
			if c.spec {
				g.o.Edge = marksAll{}
				foreign = plan.Plan{{Target: plan.Target{Level: plan.LevelContainer}, Knob: plan.CPUShares, Value: plan.Int(512), Hook: "agent"}}
			}
			io := &waiting{Kernel: k, Journal: nowhere{}}
			g.o.Kernel, g.o.Journal = io, io
			u := g.DecideUpdate(sandbox, arrival, workload.Resources{Quota: unit.Some(c.quota)}, foreign)
			if got := u.InMemory(); got != c.memory || io.times > 0 {
				t.Errorf("in memory: %t, want %t; kernel or ledger asked %d times", got, c.memory, io.times)
			}
			if u.Update(t.Context()); io.times > 0 == c.memory {
				t.Errorf("the rest asks kernel or ledger %d times", io.times)
			}
			if fell := k.has(lsr("one").Target(), plan.CPUBurst, 0); fell != (c.quota < 60000) {
				t.Errorf("the pod's burst falls: %t", fell)
			}
		})
	}
}

// waiting counts calls that may wait for a file.
type waiting struct {
	Kernel
	journal.Journal
	times int
}

// Apply implements Kernel.
func (k *waiting) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	k.times++
	return k.Kernel.Apply(ctx, p, gen)
}

// Verify implements Kernel.
func (k *waiting) Verify(p plan.Plan) []apply.Mismatch {
	k.times++
	return k.Kernel.Verify(p)
}

// Append implements journal.Journal.
func (k *waiting) Append(r ...journal.Record) error {
	k.times++
	return k.Journal.Append(r...)
}

// marksAll is the way to a runtime whose specification carries everything.
type marksAll struct{}

// Mark implements Edge.
func (marksAll) Mark(_ *node.View, pl plan.Plan, _ *workload.Container) *protocol.Applied {
	m := &protocol.Applied{Set: map[string]string{}}
	for i := range pl {
		m.Set[pl[i].Knob.String()] = pl[i].Value.String() + " " + pl[i].By()
	}
	return m
}
