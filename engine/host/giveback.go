// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// GiveBack returns what Apply has written, and nobody wants any more, to what stood there before, as a restore does: by the ledgers, and
// where the kernel still holds our value; done tells of each what became of it. rest are the settings that no ledger tells anything of;
// all of them when it cannot be read.
func (h *Host) GiveBack(ctx context.Context, p plan.Plan) (done []apply.Result, rest plan.Plan, err error) {
	records, _, err := ledger.ReadAll(h.o.Config.RunDir)
	if err != nil {
		return nil, p, fmt.Errorf("give back what was there before: %w", err)
	}
	var back plan.Plan
	steps := h.writer.Restore(ctx, about(records, p))
	for i := range p {
		s := p[i]
		n := slices.IndexFunc(steps, func(o apply.RestoreStep) bool { return isOf(s, o.Target, o.Knob, o.Key) })
		if n < 0 {
			rest = append(rest, s)
			continue
		}
		r := apply.Result{Setting: s, Err: steps[n].Err}
		switch {
		case errors.Is(r.Err, apply.ErrGone):
			r.Outcome = apply.Gone
		case r.Err != nil:
			r.Outcome = apply.Failed
		case steps[n].Action == apply.ActWrite:
			r.Outcome = apply.Written
			if s.Knob.Info().Text && len(steps[n].To) > 0 {
				// Of these knobs it is the sets of CPUs that systemd has a property for, which would write ours again.
				s.Value = plan.Text(strings.TrimSpace(steps[n].To[0]))
				back = append(back, s)
			}
		}
		done = append(done, r)
	}
	if len(back) > 0 {
		h.writer.SyncUnits(ctx, back, h.Engine.Views().Load().Generation)
	}
	return done, rest, nil
}

// about are the records of what the plan names, in their order.
func about(records []journal.Record, p plan.Plan) []journal.Record {
	return slices.DeleteFunc(records, func(r journal.Record) bool {
		id, ok := r.ID()
		return !ok || !slices.ContainsFunc(p, func(s plan.Setting) bool { return isOf(s, id.Target, id.Knob, id.Key) })
	})
}

// isOf leaves out names, which differ between those who write.
func isOf(s plan.Setting, t plan.Target, k plan.Knob, key string) bool {
	return s.Target.Level == t.Level && s.Target.Cgroup == t.Cgroup && s.Knob == k && s.Key == key
}
