// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// failing judges what was read back from the kernel at the only race-free moment: the process exists and has not been
// exec'd (D9). It lists what counts, which is what the pod or the node has chosen fail-closed for.
func failing(must protocol.FeatureSet, bad []apply.Mismatch) (reasons []string) {
	for i := range bad {
		if s := &bad[i].Setting; !s.Observe && must.Has(s.Owner) {
			reasons = append(reasons, bad[i].String())
		}
	}
	return reasons
}

// recordProof counts and keeps the result of a proof.
func (g *Engine) recordProof(name, id string, pl plan.Plan, bad []apply.Mismatch, gen uint64) {
	wrong := make(map[plan.ID]*apply.Mismatch, len(bad))
	for i := range bad {
		wrong[bad[i].Setting.ID()] = &bad[i]
	}
	records := make([]journal.Record, 0, len(pl))
	failure := status.ProofFailure{Time: g.o.Now(), Container: name}
	for i := range pl {
		s := &pl[i]
		if s.Observe {
			g.m.Observed(s.Owner)
			continue
		}
		rec := g.record(s, journal.ViaProof, gen)
		if m := wrong[s.ID()]; m != nil {
			rec.Err = m.String()
			failure.Knobs = append(failure.Knobs, rec.Err)
			g.m.Proof(s.Knob, metrics.ResultDrift)
		} else {
			g.m.Proof(s.Knob, metrics.ResultOK)
		}
		records = append(records, rec)
	}
	g.append(records...)
	if len(failure.Knobs) == 0 {
		g.stats.dropProof(id)
		return
	}
	g.stats.keepProof(id, failure)
	g.log.Warn("values do not stand in the kernel at start", "container", name, "id", id, "knobs", failure.Knobs)
}
