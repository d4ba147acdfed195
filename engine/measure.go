// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"slices"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// size is what a resize changes of a pod's base, as far as decisions are made by it.
type size struct{ quota, memory unit.Opt }

func sizeOf(r *workload.Resources) size { return size{r.Quota, r.MemoryLimit} }

func (l size) base(r workload.Resources) workload.Resources {
	r.Quota, r.MemoryLimit = l.quota, l.memory
	return r
}

// newPodEntry is a pod as the runtime tells of it.
func newPodEntry(p *workload.Pod) podEntry { return podEntry{p: p, lists: sizeOf(&p.Base)} }

// listedPod is a pod of the runtime's list, which may be as old as the pod: containerd lists what the sandbox was made with, whatever
// it has been told since. What this process knows is newer, unless the list says something else than the last time.
func (g *Engine) listedPod(p *workload.Pod) podEntry {
	e := newPodEntry(p)
	e.unsure = true
	old, ok := g.reg.pod(p.ID)
	if !ok {
		if p.Ask.Resctrl != nil {
			now, _ := g.lookForGroup(g.views.Load(), p)
			e.ungrouped = now.missing
		}
		return e
	}
	e.plan, e.group, e.ungrouped, e.gen, e.before = old.plan, old.group, old.ungrouped, old.gen, old.before
	e.minAbove, e.lowAbove = old.minAbove, old.lowAbove
	if old.lists == e.lists {
		next := *p
		next.Base = sizeOf(&old.p.Base).base(p.Base)
		e.p = &next
	}
	return e
}

// measure asks the kernel what the kubelet has written to a listed pod's cgroup since, as long as no event has told. Where a value of
// ours stands, or is on its way, the ledger of an earlier life knows what stood there before. Where updates are untold another engine
// may be writing, or have written, whose values are not the kubelet's: only what is the sum of the containers' limits is, and it is asked
// for once, since the shifts of containers that are resized keep it from then on. It returns the knobs that the kernel has told of.
func (g *Engine) measure(sandbox string) (told []plan.Knob) {
	e, ok := g.reg.pod(sandbox)
	if !ok || !e.unsure || e.stopped || e.p.Cgroup == "" || g.o.UpdatesUntold && !g.untold() {
		return nil
	}
	now := sizeOf(&e.p.Base)
	var ask plan.Plan
	for _, one := range [...]struct {
		knob plan.Knob
		base *unit.Opt
	}{{plan.CPUQuota, &now.quota}, {plan.MemoryLimit, &now.memory}} {
		if ours := e.plan.Get(one.knob); ours != nil && !ours.Observe {
			if at := slices.IndexFunc(e.before, func(s plan.Setting) bool { return s.Knob == one.knob }); at >= 0 {
				*one.base = unit.Some(e.before[at].Value.Int())
			}
			continue
		}
		ask = append(ask, plan.Setting{Target: e.p.Target(), Knob: one.knob, Value: plan.Int(one.base.Or(-1))})
		told = append(told, one.knob)
	}
	unread := false
	for _, m := range g.o.Kernel.Verify(ask) {
		unread = unread || m.Err != nil
		switch {
		case m.Err != nil, m.Got.Int() < 0: // no resize takes a limit away: that was somebody else
			told = slices.DeleteFunc(told, func(k plan.Knob) bool { return k == m.Setting.Knob })
		case m.Setting.Knob == plan.CPUQuota:
			now.quota = unit.Some(m.Got.Int())
		case m.Setting.Knob == plan.MemoryLimit:
			now.memory = unit.Some(m.Got.Int())
		}
	}
	was := sizeOf(&e.p.Base)
	if g.o.UpdatesUntold {
		told = nil // what is taken here is what the containers had when they were listed
		sum := g.reg.limits(sandbox)
		if now.quota != sum.quota {
			now.quota = was.quota
		}
		if now.memory != sum.memory {
			now.memory = was.memory
		}
	} else if now == was {
		return told
	}
	g.reg.changePod(sandbox, func(e *podEntry) {
		if !e.unsure { // an event has told meanwhile
			return
		}
		e.unsure = !g.o.UpdatesUntold || unread
		next := *e.p
		next.Base = now.base(next.Base)
		e.p = &next
	})
	return told
}

// unmoved is what a container had, for the shift of its pod's base by what it has now. The kubelet raises a pod's limit before its containers'
// and lowers it after them: one that the kernel has just told, and that grows, has grown already.
func unmoved(before, after workload.Resources, told []plan.Knob) workload.Resources {
	if slices.Contains(told, plan.CPUQuota) && after.Quota.V > before.Quota.V {
		before.Quota = after.Quota
	}
	if slices.Contains(told, plan.MemoryLimit) && after.MemoryLimit.V > before.MemoryLimit.V {
		before.MemoryLimit = after.MemoryLimit
	}
	return before
}
