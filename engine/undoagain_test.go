// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// full is a kernel that refuses everything while on is set, as a full ledger does.
type full struct {
	engine.Kernel
	on      atomic.Bool
	refused atomic.Int64
}

func (f *full) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	if !f.on.Load() {
		return f.Kernel.Apply(ctx, p, gen)
	}
	out := make([]apply.Result, len(p))
	for i := range p {
		out[i] = apply.Result{Setting: p[i], Outcome: apply.Failed, Err: errors.New("no space left")}
	}
	f.refused.Add(int64(len(p)))
	return out
}

// What could not be taken back is taken back by a later pass, of the container and of its pod.
func TestUndoIsTriedAgain(t *testing.T) {
	t.Parallel()
	const pod, dir = "/kubepods/burstable/podu", "/kubepods/burstable/podu/c1"
	kernel := &full{}
	r := newRig(t, 0, func(o *engine.Options) { kernel.Kernel, o.Kernel = o.Kernel, kernel })
	sb := r.pod(t, nil)
	sb.Read().Base.Quota, sb.Read().Base.Period = unit.Some(200000), unit.Some(100000)
	r.tree.Mkdir(t, dir)
	for _, d := range []string{pod, dir} {
		r.tree.Set(t, d, "cpu.max", "200000 100000")
	}
	must(t, r.Decide(sb, container()).Prepare(t.Context(), func(_ *node.View, spec plan.Plan) plan.Plan { return spec }))
	r.Named("pending", "c1", dir)
	must(t, r.Start(t.Context(), sb, engine.Arrival{ID: "c1"}, 0, ""))
	stands := func(want string) func() bool {
		return func() bool {
			return r.tree.Get(t, dir, "cpu.max.burst") == want && r.tree.Get(t, pod, "cpu.max.burst") == want
		}
	}
	r.Repair()
	enginetest.Eventually(t, "the burst", stands("200000"))
	kernel.on.Store(true)
	r.Views().SetFile(&strategy.Spec{}, "test")
	enginetest.Eventually(t, "a refusal of both", func() bool { return kernel.refused.Load() >= 2 })
	if !stands("200000")() {
		t.Fatal("the refused writes were made")
	}
	kernel.on.Store(false)
	r.Repair()
	enginetest.Eventually(t, "the end of the burst", stands("0"))
}
