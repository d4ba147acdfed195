// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"

	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/koordlet/internal/agent"
	"github.com/koord-rt/koord-rt/koordlet/internal/collect"
	"github.com/koord-rt/koord-rt/model/plan"
)

// tellingKernel is a Kernel that tells what became of each plan.
type tellingKernel struct {
	engine.Kernel
	tell func([]apply.Result)
}

// Apply implements engine.Kernel.
func (c tellingKernel) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	out := c.Kernel.Apply(ctx, p, gen)
	c.tell(out)
	return out
}

// write is the agent's own writing.
func (d *Daemon) write(ctx context.Context, p plan.Plan) []apply.Result {
	out := d.host.Apply(ctx, p)
	d.wrote(out)
	return out
}

// wrote counts the writes of a plan, of the engine or of the agent. What stood already was not written; a target that has gone is
// nobody's failure, as upstream has it; a limit that the kernel still reclaims for has not been written yet. New has made the counters before
// anything runs that could write.
func (d *Daemon) wrote(results []apply.Result) {
	for i := range results {
		r := &results[i]
		if r.Took > 0 && (r.Outcome == apply.Written || r.Outcome == apply.Failed) {
			d.count.Updated(updateOf(r.Setting.Knob), r.Took, r.Outcome == apply.Failed)
		}
	}
}

// updateOf is upstream's word for what a knob stands in.
func updateOf(k plan.Knob) metrics.Update {
	switch k {
	case plan.RDTSchemata:
		return metrics.UpdateSchemata
	case plan.SchedPolicy, plan.RDTClass, plan.RDTMonGroup, plan.CoreSchedCookie, plan.OOMScoreAdj, plan.VMMinFree, plan.VMWatermarkScale, plan.NetShape:
		return metrics.UpdateOther
	}
	return metrics.UpdateCgroup
}

// countStep counts a step and what was read before it.
func (d *Daemon) countStep(l *agent.Look) {
	name := loopTick
	if l.Facts.Urgent {
		name = loopUrgent
		d.count.Reaction(l.Reaction)
	}
	d.count.Loop(name, l.Took, l.Failed)
	r := &l.Scan
	d.count.Scan(r.Samples, r.Failed)
	for what, reading := range [metrics.NumCollects]collect.Reading{
		metrics.CollectCPU: r.CPUs, metrics.CollectNUMA: r.NUMA, metrics.CollectStorage: r.Disks,
	} {
		if reading != collect.NotRead {
			d.count.Collected(metrics.Collect(what), reading == collect.ReadFailed) //nolint:gosec // below NumCollects
		}
	}
}
