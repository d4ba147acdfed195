// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"slices"
	"sync"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// left are the values that an earlier life, or another writer that has gone, wrote directly and that stand in the kernel. A pod
// or container begins with them as its former plan, so that what is not wanted any more is given back, and a burst is known that
// stands in a resize's way. Each is handed out once: later the former plan is our own. Of the QoS directories, which have no plan,
// what could not be given back is handed in again.
type left struct {
	mu    sync.Mutex
	of    map[string]leftover // by a pod's cgroup, by a container's id
	above leftover            // of the QoS directories
}

// leftover is what stands, and before what stood there before, where that is known.
type leftover struct{ plan, before plan.Plan }

// Keep takes in what kernel/apply's Recall has found. What hook servers wanted is left out: only they know whether they still do.
func (p *Past) Keep(found []apply.Standing) {
	for i := range found {
		st := &found[i]
		owner, ours := protocol.ParseFeature(st.By)
		if !ours {
			continue
		}
		s := plan.Setting{Target: st.ID.Target, Knob: st.ID.Knob, Key: st.ID.Key, Value: st.Value, Owner: owner, Reason: "of an earlier life"}
		switch s.Target.Level {
		case plan.LevelPod:
			p.left.add(s.Target.Cgroup, s, st)
		case plan.LevelContainer:
			p.left.add(s.Target.Container, s, st)
		case plan.LevelQoS:
			if owner == protocol.FeatureMemory && (s.Knob == plan.MemoryMin || s.Knob == plan.MemoryLow) {
				p.left.above.add(s, st) // the rest of this level is the node agent's
			}
		}
	}
}

func (l *left) add(name string, s plan.Setting, st *apply.Standing) {
	if name == "" {
		return
	}
	if l.of == nil {
		l.of = map[string]leftover{}
	}
	o := l.of[name]
	o.add(s, st)
	l.of[name] = o
}

func (o *leftover) add(s plan.Setting, st *apply.Standing) {
	o.plan = append(o.plan, s)
	if st.Known {
		s.Value = st.Original
		o.before = append(o.before, s)
	}
}

// take hands out what is left of one pod or container.
func (p *Past) take(name string) leftover {
	if p == nil {
		return leftover{}
	}
	p.left.mu.Lock()
	defer p.left.mu.Unlock()
	o := p.left.of[name]
	delete(p.left.of, name)
	return o
}

func (p *Past) takeAbove() leftover {
	if p == nil {
		return leftover{}
	}
	p.left.mu.Lock()
	defer p.left.mu.Unlock()
	o := p.left.above
	p.left.above = leftover{}
	return o
}

// keepAbove takes back what takeAbove has handed out and could not be given back.
func (p *Past) keepAbove(o leftover) {
	if p == nil || len(o.plan) == 0 {
		return
	}
	p.left.mu.Lock()
	defer p.left.mu.Unlock()
	p.left.above.plan = append(p.left.above.plan, o.plan...)
	p.left.above.before = append(p.left.above.before, o.before...)
}

// refused is the part that could not be given back, as the ledger was full or the kernel refused; next is what is wanted.
func (o *leftover) refused(next plan.Plan, results []apply.Result) leftover {
	kept := notUndone(o.plan, next, results)
	if len(kept) == 0 {
		return leftover{}
	}
	return leftover{plan: kept, before: o.before}
}

// startPod gives a pod that is taken in the former plan that the ledger tells.
func (g *Engine) startPod(e *podEntry) {
	if o := g.past.Load().take(e.p.Cgroup); len(o.plan) > 0 {
		e.plan, e.before = withLeft(e.plan, o.plan, e.p.Target()), o.before
	}
}

// startContainer is startPod for a container; its specification's base says what stood there before.
func (g *Engine) startContainer(pod *workload.Pod, e *entry) {
	if o := g.past.Load().take(e.c.ID); len(o.plan) > 0 {
		e.plan = withLeft(e.plan, o.plan, e.c.Target(pod))
	}
}

// withLeft is a former plan with what stands in the kernel in its place: it was written later than a specification.
func withLeft(had, stands plan.Plan, t plan.Target) plan.Plan {
	out := slices.Clone(had)
	for _, s := range stands {
		s.Target = t // names differ between those who write
		if old := out.Find(t, s.Knob, s.Key); old != nil {
			*old = s
			continue
		}
		out = append(out, s)
	}
	return out
}

// withPodUndo is withUndo for a pod. Where the ledger of an earlier life tells what stood there before, that comes back: a
// runtime that does not tell a pod's resize lists the pod as it was made.
func withPodUndo(v *node.View, e *podEntry, next plan.Plan) plan.Plan {
	out := withUndo(v, e.plan, next, e.p.Base)
	for i := len(next); i < len(out); i++ { // beyond next it is a copy
		s := &out[i]
		if at := slices.IndexFunc(e.before, func(b plan.Setting) bool { return b.Knob == s.Knob && b.Key == s.Key }); at >= 0 {
			s.Value, s.Reason = e.before[at].Value, "no longer wanted: as before"
		}
	}
	return out
}

// withAboveUndo adds to the sums of the ancestors what takes back those of an earlier life that nobody sums up any more: the
// feature has been switched off since.
func withAboveUndo(next plan.Plan, o leftover) plan.Plan {
	for _, s := range o.plan {
		if now := next.Find(s.Target, s.Knob, s.Key); now != nil && !now.Observe {
			continue
		}
		s.Value, s.Reason = plan.Int(0), "no longer wanted: this directory is the kubelet's"
		if at := o.before.Find(s.Target, s.Knob, s.Key); at != nil {
			s.Value = at.Value
		}
		next = append(next, s)
	}
	return next
}

// falls reports whether a quota that is asked for restricts more than the one before.
func falls(before, asked unit.Opt) bool {
	return asked.V > 0 && (before.V <= 0 || asked.V < before.V)
}
