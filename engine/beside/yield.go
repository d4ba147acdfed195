// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package beside

import (
	"context"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Yield is the kernel of a program that has others beside it who go first: while they cover the containers, direct writes
// are their own, and nothing is done twice. From the moment in which they are gone the writes are ours; the repair pass makes
// up for what lies between.
type Yield struct {
	engine.Kernel
	// Covered reports whether they do.
	Covered func() bool
}

// Apply implements engine.Kernel.
func (y Yield) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	if !y.Covered() {
		return y.Kernel.Apply(ctx, p, gen)
	}
	return skipped(p)
}

// SyncUnits implements engine.Kernel.
func (y Yield) SyncUnits(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	if !y.Covered() {
		return y.Kernel.SyncUnits(ctx, p, gen)
	}
	return skipped(p)
}

func skipped(p plan.Plan) []apply.Result {
	out := make([]apply.Result, len(p))
	for i := range p {
		out[i] = apply.Result{Setting: p[i], Outcome: apply.Skipped}
	}
	return out
}
