// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"context"
	"slices"

	"github.com/koord-rt/koord-rt/model/plan"
)

// lateWrite is a write that nobody waits for any more. cgroup v1 sets a limit when it has reclaimed, and a write that was told to try
// again is repeated: either may come to stand over what was wanted later, which is next.
type lateWrite struct {
	knob plan.Knob
	next *plan.Setting
	gen  uint64 // next's
}

// want notes what is wanted now beside the late writes of the same knob, whether or not the kernel has it already.
func (t *target) want(s plan.Setting, gen uint64) {
	for _, l := range t.late {
		if l.knob == s.Knob {
			next := s // on the heap here alone
			l.next, l.gen = &next, gen
		}
	}
}

// after writes again what was wanted while a late write was under way, if something else stands.
func (a *Applier) after(t *target, l *lateWrite) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late = slices.DeleteFunc(t.late, func(o *lateWrite) bool { return o == l })
	if l.next == nil || t.dead {
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
