// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Apply writes a plan of the program's own, beside those of the engine: what belongs to no pod. Where cgroups are systemd
// units, their properties follow.
func (h *Host) Apply(ctx context.Context, p plan.Plan) []apply.Result {
	gen := h.Engine.Views().Load().Generation
	out := h.writer.Apply(ctx, p, gen)
	wrote := false
	for i := range out {
		wrote = wrote || out[i].Outcome == apply.Written
	}
	h.Engine.Attribute(ctx, out) // as long as systemd holds what it held
	if wrote {
		h.writer.SyncUnits(ctx, p, gen)
	}
	return out
}
