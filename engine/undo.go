// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"slices"
	"strconv"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// withUndo is next together with settings that take back what old set and next no longer wants: the value that the
// kubelet asked for, or the widest one where it asked for none. A knob that cannot be taken back from a running
// container (environment, devices) is left out.
func withUndo(v *node.View, old, next plan.Plan, base workload.Resources) plan.Plan {
	out := next
	for i := range old {
		s := old[i]
		if now := next.Find(s.Target, s.Knob, s.Key); s.Observe || now != nil && !now.Observe {
			continue
		}
		value, ok := widest(v, s.Knob, &base)
		if !ok {
			continue
		}
		if s.Knob == plan.OOMScoreAdj {
			s.Only = unit.Some(s.Value.Int()) // who has set its own since keeps it
		}
		s.Value, s.Reason = value, "no longer wanted: as before, or without limit"
		if len(out) == len(next) {
			out = append(plan.Plan(nil), next...) // next belongs to the registry
		}
		out = append(out, s)
		if s.Knob == plan.CPUIdle && next.Find(s.Target, plan.CPUShares, "") == nil && base.Shares.Set {
			// Leaving cpu.idle resets the weight to the default.
			s.Knob, s.Value = plan.CPUShares, plan.Int(base.Shares.V)
			out = append(out, s)
		}
		if p := base.Period; s.Knob == plan.CPUQuota && value.Int() > 0 && p.Set && p.V != int64(unit.CFSPeriod) &&
			old.Find(s.Target, plan.CPUPeriod, "") == nil && next.Find(s.Target, plan.CPUPeriod, "") == nil {
			// Systemd gives what has no quota a period of 100 ms.
			s.Knob, s.Value = plan.CPUPeriod, plan.Int(p.V)
			out = append(out, s)
		}
	}
	return out
}

// join is now with what only former has. What is only observed now does not stand for what was written before.
func join(now, former plan.Plan) plan.Plan {
	out := now
	for i := range former {
		s := &former[i]
		if !slices.ContainsFunc(out, func(o plan.Setting) bool { return o.ID() == s.ID() && (!o.Observe || s.Observe) }) {
			out = append(out[:len(out):len(out)], *s) // now belongs to the registry
		}
	}
	return out
}

// notUndone are the settings of old that next does not want and that could not be taken back, as the ledger was full or the kernel
// refused. They stay in the former plan, so that a later pass tries again.
func notUndone(old, next plan.Plan, results []apply.Result) (kept plan.Plan) {
	for i := range results {
		s := &results[i].Setting
		if results[i].Outcome != apply.Failed {
			continue
		}
		if now := next.Find(s.Target, s.Knob, s.Key); now != nil && !now.Observe {
			continue // the drift check sees to what is wanted
		}
		if was := old.Find(s.Target, s.Knob, s.Key); was != nil {
			kept = append(kept, *was)
		}
	}
	return kept
}

// keepUndone keeps notUndone of a pod in its plan.
func (g *Engine) keepUndone(had *podEntry, next plan.Plan, results []apply.Result) {
	if kept := notUndone(had.plan, next, results); len(kept) > 0 {
		g.reg.changePod(had.p.ID, func(e *podEntry) { e.plan, e.gen = slices.Concat(e.plan, kept), undecided })
	}
}

// widest is the value of a knob as if we had never been there.
func widest(v *node.View, k plan.Knob, base *workload.Resources) (plan.Value, bool) {
	if asked, ok := askedFor(k, base); ok {
		return asked, true
	}
	switch k {
	case plan.CPUShares:
		return plan.Int(base.Shares.Or(int64(unit.MinShares))), true
	case plan.CPUQuota:
		return plan.Int(base.Quota.Or(unit.Unlimited)), true
	case plan.CPUPeriod:
		return plan.Int(base.Period.Or(int64(unit.CFSPeriod))), true
	case plan.MemoryLimit:
		return plan.Int(base.MemoryLimit.Or(unit.Unlimited)), true
	case plan.CPUSetCPUs:
		return listOr(base.CPUs, v.Topology.All().String())
	case plan.CPUSetMems:
		return listOr(base.Mems, v.Topology.Nodes.String())
	case plan.OOMScoreAdj:
		return plan.Int(base.OOMScoreAdj.V), base.OOMScoreAdj.Set
	case plan.RDTClass:
		return plan.Text(base.RDT), true
	case plan.CoreSchedCookie:
		return plan.Text(""), true
	}
	return plan.Neutral(k) // a monitoring group has none: it is removed instead, which moves its tasks
}

// askedFor is what the kubelet or the runtime has put into the container's unified keys: its MemoryQoS, or
// memory.oom.group = 1.
func askedFor(k plan.Knob, base *workload.Resources) (plan.Value, bool) {
	text, ok := base.Unified[k.UnifiedKey()]
	if !ok || k.Info().Text || k.Info().Keyed {
		return plan.Value{}, false
	}
	if text == "max" && k.Unlimitable() {
		return plan.Int(unit.Unlimited), true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return plan.Int(n), err == nil
}

func listOr(list, all string) (plan.Value, bool) {
	if list == "" {
		list = all
	}
	return plan.Text(list), list != ""
}
