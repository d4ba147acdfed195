// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// ask notes that the runtime has been given an update of what the container was until now, to now. One that changes nothing may be a refused one
// that is asked for again, or something else, whose end says nothing of that.
func (e *entry) ask(was, now *workload.Container) {
	if e.unsaid == 0 {
		e.ahead, e.asked = was, 0
	}
	if !sameLimits(&was.Base, &now.Base) {
		e.asked++
	}
	e.unsaid++
}

// answered notes that the runtime has written one of a container's updates.
func (r *registry) answered(id string) {
	r.changeContainer(id, func(e *entry) {
		if e.unsaid > 0 {
			e.unsaid--
		}
		if e.unsaid == 0 {
			e.ahead = nil
		}
	})
}

// refused looks at the kernel for updates that the runtime has not said to have written in answerLimit, and takes those back that it shows to
// have been refused, which NRI does not tell: what was decided by them, as a smaller burst, would stay where nobody asks for them again.
// What that changes is written as where an update comes during a repair, and with the next look.
func (g *Engine) refused(v *node.View, w *work) {
	if w.ahead == nil || g.o.Now().Sub(w.toldAt) <= answerLimit {
		return
	}
	base, refused, ok := g.shown(v, w)
	if !ok {
		return // the cgroup is not there yet
	}
	g.reg.changeContainer(w.c.ID, func(e *entry) {
		if e.c == w.c {
			e.ahead, e.unsaid = nil, 0
		}
	})
	if !refused {
		return
	}
	g.log.Info("the runtime has refused an update", "container", w.c.Target(w.pod.p).Name, "id", w.c.ID)
	was := *w.c
	was.Base = base
	g.updateRefused(Sandbox{ID: w.sandbox, Read: func() *workload.Pod { return w.pod.p }}, &was, w.c)
}

// shownBy are the knobs of the request by which the kernel shows whose values it has.
var shownBy = [...]plan.Knob{plan.CPUShares, plan.CPUQuota, plan.MemoryLimit, plan.CPUSetCPUs, plan.CPUSetMems}

// sameLimits compares what the kernel shows.
func sameLimits(a, b *workload.Resources) bool {
	return a.Shares == b.Shares && a.Quota == b.Quota && a.Period == b.Period && a.MemoryLimit == b.MemoryLimit && a.CPUs == b.CPUs && a.Mems == b.Mems
}

// shown is what the container was asked to have by what the kernel holds, and whether that is less than what is believed. A knob that
// is ours tells nothing; of a single update it goes with the others. ok is false where the kernel cannot be read.
func (g *Engine) shown(v *node.View, w *work) (base workload.Resources, refused, ok bool) {
	base = w.c.Base
	stood := w.stood()
	done := false
	for _, k := range shownBy {
		was, knownWas := widest(v, k, &w.ahead.Base)
		is, knownIs := widest(v, k, &w.c.Base)
		if s := stood.Get(k); !knownWas || !knownIs || was == is || s != nil && !s.Observe {
			continue
		}
		holds := func(value plan.Value) (same, ok bool) {
			for _, m := range g.o.Kernel.Verify(plan.Plan{{Target: w.c.Target(w.pod.p), Knob: k, Value: value}}) {
				return false, m.Err == nil
			}
			return true, true
		}
		new, readable := holds(is)
		if !readable {
			return base, false, false
		}
		old, readable := holds(was)
		if !readable {
			return base, false, false
		}
		switch {
		case new:
			done = true
		case old:
			refused = true
			base = withLimit(base, w.ahead.Base, k)
		}
	}
	if refused && !done && w.asked == 1 {
		base = w.ahead.Base
	}
	return base, refused, true
}

// withLimit is base with one knob of another one.
func withLimit(base, from workload.Resources, k plan.Knob) workload.Resources {
	switch k {
	case plan.CPUShares:
		base.Shares = from.Shares
	case plan.CPUQuota:
		base.Quota, base.Period = from.Quota, from.Period
	case plan.MemoryLimit:
		base.MemoryLimit = from.MemoryLimit
	case plan.CPUSetCPUs:
		base.CPUs = from.CPUs
	case plan.CPUSetMems:
		base.Mems = from.Mems
	}
	return base
}
