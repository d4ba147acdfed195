// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package beside

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// overdue is a want that the others have not seen to, with what stands instead.
type overdue struct {
	x   *want
	bad apply.Mismatch
}

// look reads back everything that was left, and mends what has been wrong for as long as wait.
func (w *Ward) look(ctx context.Context, now time.Time, wait time.Duration) {
	p, seen := w.wanted()
	if len(p) == 0 {
		return
	}
	due := w.judge(seen, w.verify(p), now, wait)
	if len(due) == 0 {
		return
	}
	due, err := w.withoutTheirs(due, now)
	if err != nil {
		w.o.Trouble(fmt.Errorf("what the writer that goes first wants is not known, nothing is mended: %w", err))
		return
	}
	if len(due) > 0 {
		w.mend(ctx, due, now)
	}
}

// verify reads a sorted plan back, one target at a time: a pass over a plan looks for settings that lie beside each other, which in
// a plan of the whole node are few among very many.
func (w *Ward) verify(p plan.Plan) (bad []apply.Mismatch) {
	for len(p) > 0 {
		n := 1
		for n < len(p) && p[n].Target == p[0].Target {
			n++
		}
		bad = append(bad, w.Kernel.Verify(p[:n:n])...)
		p = p[n:]
	}
	return bad
}

// Missing reads back at once what was left to those who go first, and returns what has not come to stand since it was last asked for. What
// is let stand, and what has ended, is none of it.
func (w *Ward) Missing() (bad []apply.Mismatch) {
	p, seen := w.wanted()
	wrong := byID(w.verify(p))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range seen {
		m := wrong[x.setting.ID()]
		switch {
		case m == nil, w.left[x.setting.ID()] != x, errors.Is(m.Err, apply.ErrGone), x.stood(), x.let != nil && alike(x.let, m):
		default:
			bad = append(bad, *m)
		}
	}
	return bad
}

// stood says that it has stood since it was last asked for: if it does not now, it may not be wanted any more.
func (x *want) stood() bool { return x.wrong.IsZero() && !x.right.IsZero() && !x.right.Before(x.again) }

// wanted is all that was left, in a plan's order.
func (w *Ward) wanted() (plan.Plan, []*want) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, seen := make(plan.Plan, 0, len(w.left)), make([]*want, 0, len(w.left))
	for _, x := range w.left {
		p, seen = append(p, x.setting), append(seen, x)
	}
	p.Sort()
	return p, seen
}

// judge compares what was wanted with what is wrong, and returns what is overdue. A want that has changed meanwhile is left
// to the next look.
func (w *Ward) judge(seen []*want, bad []apply.Mismatch, now time.Time, wait time.Duration) (due []overdue) {
	wrong := byID(bad)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range seen {
		id := x.setting.ID()
		if w.left[id] != x {
			continue
		}
		old := now.Sub(x.again) > outdated*w.o.Interval
		m := wrong[id]
		switch {
		case m == nil:
			x.right, x.wrong, x.let = now, time.Time{}, nil
			if old {
				delete(w.left, id)
			}
		case errors.Is(m.Err, apply.ErrGone), x.let != nil && old:
			delete(w.left, id)
		case x.stood():
			if old {
				delete(w.left, id)
			}
		case x.let != nil && alike(x.let, m) && now.Sub(x.letAt) < tolerated*w.o.Interval:
		default:
			if x.let != nil || x.wrong.IsZero() {
				x.let, x.wrong = nil, now
			}
			if now.Sub(x.wrong) >= wait {
				due = append(due, overdue{x, *m})
			}
		}
	}
	return due
}

func byID(bad []apply.Mismatch) map[plan.ID]*apply.Mismatch {
	out := make(map[plan.ID]*apply.Mismatch, len(bad))
	for i := range bad {
		out[bad[i].Setting.ID()] = &bad[i]
	}
	return out
}

// alike reports that the same stands there in both.
func alike(a, b *apply.Mismatch) bool { return a.Got == b.Got && (a.Err == nil) == (b.Err == nil) }

// withoutTheirs leaves out what those who go first have recorded for the setting since we began to want something else, if
// that is what stands: a container was resized by way of them, or they are configured otherwise. The same news may have
// reached them an interval before us; what they wrote earlier is no answer to what is wanted now. Nor is what we wanted ourselves a short while
// before, unless they have said it since: a value may move every second, and one of them may have got stuck at it.
func (w *Ward) withoutTheirs(due []overdue, now time.Time) ([]overdue, error) {
	for _, writer := range w.first {
		said, err := lastWords(w.o.RunDir, writer)
		if err != nil {
			return nil, err
		}
		var theirs plan.Plan
		for _, d := range due {
			s := d.bad.Setting
			if word, ok := said[placeOf(&s)]; ok && w.at(d.x, -w.o.Interval).Before(word.said) && !w.behind(d.x, &word) {
				s.Value = word.value
				theirs = append(theirs, s)
			}
		}
		if len(theirs) == 0 {
			continue
		}
		wrong := byID(w.Kernel.Verify(theirs))
		stands := map[plan.ID]bool{}
		for i := range theirs {
			if id := theirs[i].ID(); wrong[id] == nil {
				stands[id] = true
			}
		}
		due = slices.DeleteFunc(due, func(d overdue) bool {
			if !stands[d.bad.Setting.ID()] {
				return false
			}
			w.let(d.x, &d.bad, now)
			return true
		})
	}
	return due, nil
}

// behind reports a word that is what we wanted a short while before, and was said before we began to want something else.
func (w *Ward) behind(x *want, said *word) bool {
	return said.said.Before(w.at(x, 0)) && slices.ContainsFunc(x.was, func(p past) bool { return p.value == said.value })
}

// at is a record as of so long after we began to want something, which one of theirs is newer or older than.
func (w *Ward) at(x *want, after time.Duration) *journal.Record {
	out := &journal.Record{Time: x.first.Add(after), Boot: w.o.Boot}
	if x.up > 0 {
		out.Up = uint64(max(x.up+after, 1))
	}
	return out
}

// let lets something stand for now.
func (w *Ward) let(x *want, m *apply.Mismatch, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x.let, x.letAt = m, now
}

// mend writes what is overdue, with what else is wanted of the same targets: knobs bear on each other. What cannot be brought
// to stand is let stand.
func (w *Ward) mend(ctx context.Context, due []overdue, now time.Time) {
	results := func() []apply.Result {
		w.turn.Lock()
		defer w.turn.Unlock()
		p, gen := w.toMend(due)
		if len(p) == 0 {
			return nil
		}
		out := w.Kernel.Apply(ctx, p, gen)
		w.keep(out, w.Kernel.Verify(p), now)
		return out
	}()
	if len(results) > 0 {
		w.o.Mended(results)
	}
}

// toMend is the plan of the targets of what is overdue and has not been taken back or changed since.
func (w *Ward) toMend(due []overdue) (p plan.Plan, gen uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	targets := map[plan.Target]bool{}
	for _, d := range due {
		if s := &d.x.setting; w.left[s.ID()] == d.x {
			targets[s.Target] = true
			gen = max(gen, d.x.gen)
		}
	}
	for _, x := range w.left {
		if targets[x.setting.Target] && x.let == nil {
			p = append(p, x.setting)
		}
	}
	p.Sort()
	return p, gen
}

// keep notes what became of it.
func (w *Ward) keep(results []apply.Result, bad []apply.Mismatch, now time.Time) {
	wrong := byID(bad)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range results {
		id := results[i].Setting.ID()
		if o := results[i].Outcome; o == apply.Written || o == apply.Pending {
			w.mended[id] = true
		}
		x := w.left[id]
		if x == nil || x.setting.Value != results[i].Setting.Value {
			continue
		}
		if x.let, x.letAt = wrong[id], now; x.let == nil {
			x.right, x.wrong = now, time.Time{}
		}
	}
	// Units know their values once they have been told; what is not wanted any more need not be.
	maps.DeleteFunc(w.mended, func(id plan.ID, _ bool) bool { return w.left[id] == nil })
}
