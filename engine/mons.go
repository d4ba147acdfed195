// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// mon is a monitoring group below a control group, "" for the root group.
type mon struct{ group, name string }

// mons are the monitoring groups that are ours, each of which takes a number (RMID) of the hardware until it is removed: that its
// processes have ended frees none. Only the repair loop touches them.
type mons struct {
	ours journal.Counted
	// past is what ours has taken in; idle were unused at the last check.
	past *Past
	idle map[mon]bool
}

// sweepMons removes monitoring groups of ours that no container has used at two drift checks in a row: of pods that went while we were
// away, and what could not be removed with its pod. Who writes does it.
func (g *Engine) sweepMons() {
	if g.o.Groups == nil || g.stats.lastSync.Load() == 0 || g.o.Beside != nil && g.o.Beside() {
		return
	}
	m := &g.mons
	if past := g.past.Load(); past != nil && past != m.past {
		m.past = past
		m.ours.Join(&past.counted)
	}
	used := g.reg.monsInUse(&m.ours)
	if m.ours.Empty() {
		return
	}
	list, err := g.listMons()
	if err != nil {
		g.problem("resctrl", "monitoring groups", err.Error())
		return
	}
	idle, names := map[mon]bool{}, map[string]bool{}
	for at := range used {
		names[at.name] = true
	}
	for _, at := range list {
		names[at.name] = true
		if used[at] || !m.ours.Has(at.group, at.name) {
			continue
		}
		if idle[at] = true; !m.idle[at] {
			continue
		}
		if err := g.o.Groups.RemoveMon(at.group, at.name); err != nil {
			g.problem("resctrl", "monitoring group "+at.name, err.Error())
			continue
		}
		g.log.Info("removed a resctrl monitoring group that nobody uses any more", "group", at.group, "pod", at.name)
	}
	m.idle = idle
	m.ours.Keep(names)
}

// listMons are the monitoring groups of the machine, whoever made them.
func (g *Engine) listMons() (out []mon, err error) {
	groups, err := g.o.Groups.Groups()
	if err != nil {
		return nil, err
	}
	for _, group := range append([]string{""}, groups...) {
		names, err := g.o.Groups.MonGroups(group)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			out = append(out, mon{group, name})
		}
	}
	return out, nil
}

// monsInUse are the monitoring groups of the plans of containers that live or are being created. What is named by a pod's UID is ours
// from then on.
func (r *registry) monsInUse(ours *journal.Counted) map[mon]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[mon]bool{}
	for _, e := range r.containers {
		group, name := monOf(e.plan)
		if name == "" || e.c.State == workload.StateStopped {
			continue
		}
		out[mon{group, name}] = true
		if pod, ok := r.pods[e.sandbox]; ok && pod.p.UID == name {
			ours.Add(group, name)
		}
	}
	return out
}

// removeMon removes the monitoring group that a container has left, unless another one is in it. A group that still has
// tasks gives them back to its control group.
func (g *Engine) removeMon(e entry) {
	class, mon := monOf(e.plan)
	if mon == "" || g.o.Groups == nil {
		return
	}
	for _, it := range g.reg.running() {
		if c, m := monOf(it.plan); c == class && m == mon && it.c.ID != e.c.ID {
			return
		}
	}
	if err := g.o.Groups.RemoveMon(class, mon); err != nil {
		g.problem(e.c.Name, "resctrl monitoring group", err.Error())
	}
}

// monOf is a plan's monitoring group and the control group above it, "" for the root group.
func monOf(pl plan.Plan) (class, mon string) {
	s := pl.Get(plan.RDTMonGroup)
	if s == nil || s.Observe {
		return "", ""
	}
	if c := pl.Get(plan.RDTClass); c != nil {
		class = c.Value.String()
	}
	return class, s.Value.String()
}
