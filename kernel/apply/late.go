// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"context"
	"slices"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// lateWrite is a write that nobody waits for any more. cgroup v1 sets a limit when it has reclaimed, and a write that was told to try
// again is repeated: either may come to stand over what was wanted later, which is next, or over what was given back.
type lateWrite struct {
	knob plan.Knob
	rec  journal.Record
	next *plan.Setting
	gen  uint64 // next's
	back *comeback
}

// comeback is what a restore knew of a knob with a late write.
type comeback struct {
	history   history
	originals map[string]string
}

// reclaimsIn reports knobs whose writes may be late.
func reclaimsIn(k plan.Knob) bool { return k == plan.MemoryLimit || k == plan.MemoryHigh }

// want notes what is wanted now beside the late writes of the same knob, whether or not the kernel has it already.
func (t *target) want(s plan.Setting, gen uint64) {
	for _, l := range t.late {
		if l.knob == s.Knob {
			next := s // on the heap here alone
			l.next, l.gen = &next, gen
		}
	}
}

// unwant has the late writes of the knobs that are restored given back as well, once they have come to their end. It goes before the
// restore looks at the kernel, so that none of them ends unseen in between.
func (a *Applier) unwant(histories []history, originals map[string]string) {
	for i := range histories {
		h := histories[i]
		if !reclaimsIn(h.id.Knob) || h.ours == nil || !a.knows(keyOf(h.id.Target)) {
			continue
		}
		t := a.take(keyOf(h.id.Target))
		if slices.ContainsFunc(t.late, func(l *lateWrite) bool { return l.knob == h.id.Knob }) {
			var out RestoreStep
			if _, _, ours := a.stillOurs(h, originals, &out); !ours && out.Err == nil {
				// What stands now, which the late write goes over, is not for the restore to change.
				h.theirs, h.runtime = &journal.Record{Files: []string{h.file(a)}, Original: []string{out.From}}, nil
			}
		}
		for _, l := range t.late {
			if l.knob == h.id.Knob {
				l.next, l.back = nil, &comeback{h, originals}
			}
		}
		t.mu.Unlock()
	}
}

// knows reports whether anything was written to a target.
func (a *Applier) knows(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.targets[key] != nil
}

// after gives back a late write that was restored meanwhile, and writes again what was wanted since, if something else stands.
func (a *Applier) after(t *target, l *lateWrite) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late = slices.DeleteFunc(t.late, func(o *lateWrite) bool { return o == l })
	if t.dead {
		return
	}
	if l.back != nil {
		a.comeBack(t, l)
	}
	if l.next == nil {
		return
	}
	s := a.open()
	defer s.close()
	p := plan.Plan{*l.next}
	c, err := s.change(p, p[0])
	if err != nil || c.Same {
		return // it stands, or cannot be looked at now: the drift check sees to the rest
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // the target is locked: one that has to reclaim is late, too
	s.commit(ctx, p, t, p[0], c, &Result{Setting: p[0]}, l.gen)
}

// comeBack is the restore of what a late write has written, recorded as one: what is wanted since has the original for its own again.
func (a *Applier) comeBack(t *target, l *lateWrite) {
	h := l.back.history
	h.ours, h.recent = &l.rec, nil // nothing but this write is given back
	out := RestoreStep{Target: h.id.Target, Knob: h.id.Knob, Key: h.id.Key}
	u, ok := a.plan(h, l.back.originals, &out)
	if !ok {
		return // it has not come to stand, or its cgroup has ended
	}
	out.Reason += ": a late write of ours had come over it"
	a.undoIn(context.Background(), t, u, step{}, &out) // nobody is left to tell; a refusal is recorded
}
