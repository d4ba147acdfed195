// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"context"
	"slices"
	"time"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

// Follow takes all that a whole step has decided, and returns at once: its victims, and whether those of earlier steps whose turn has not come are
// still needed. Who is not is dropped; where that was not measured nobody is asked for, but in danger, of which the next measurement may come too
// late. Who waits too long for a measurement is dropped, too: with one he is chosen anew, if he still may be. So is who has waited while there was no
// step for as long, since the loops or the machine stood still: what he was chosen for, and whether in danger, is not known to be so any more.
func (x *Executor) Follow(o *evict.Output) {
	now := x.o.Clock()
	x.mu.Lock()
	n := len(x.dropped)
	if now-x.followedAt >= x.o.lapse() {
		x.drop(now, func(*evict.Eviction) bool { return true })
	}
	x.followedAt = now
	x.take(o.Evictions, now)
	x.decisions = slices.Clone(o.Decisions) // next takes from them
	for i := range x.asked {
		evict.Take(x.decisions, &x.asked[i])
	}
	x.drop(now, func(e *evict.Eviction) bool {
		d := x.leaving[e.Pod]
		switch evict.RestOf(x.decisions, e) {
		case evict.Needed:
			d.needed = now
			return false
		case evict.Unknown:
			return now-d.needed >= x.o.lapse()
		case evict.Enough:
		}
		return true
	})
	x.hurry(now)
	news := len(o.Evictions) > 0 || len(x.dropped) > n
	x.mu.Unlock()
	if !news {
		return
	}
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// drop takes those who need not go from the queue.
func (x *Executor) drop(now unit.Micros, spared func(e *evict.Eviction) bool) {
	x.waiting = slices.DeleteFunc(x.waiting, func(e evict.Eviction) bool {
		if !spared(&e) {
			return false
		}
		x.dropped = append(x.dropped, Result{Eviction: e, Outcome: Dropped, Took: now - x.leaving[e.Pod].since})
		delete(x.leaving, e.Pod)
		return true
	})
}

// take queues victims. A pod that is leaving already is not evicted again, but a decision in danger hurries one that still waits.
func (x *Executor) take(evictions []evict.Eviction, now unit.Micros) {
	for _, e := range evictions {
		if d := x.leaving[e.Pod]; d == nil {
			x.leaving[e.Pod] = &departure{eviction: e, since: now, needed: now}
			x.waiting = append(x.waiting, e)
			continue
		}
		for i := range x.waiting {
			if x.waiting[i].Pod == e.Pod && x.waiting[i].RespectBudget && !e.RespectBudget {
				x.waiting[i] = e
			}
		}
	}
}

// pressing is a decision in danger.
func pressing(e evict.Eviction) bool { return !e.RespectBudget }

// calmCall notes the end of the call of a calm eviction that is under way; nil when it is over.
func (x *Executor) calmCall(end context.CancelFunc) {
	now := x.o.Clock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calm, x.calmAt = end, now
	x.hurry(now)
}

// hurry ends a calm call that is not answered, once it has had as long as one in danger gets, where somebody in danger waits behind it. The lock is held.
func (x *Executor) hurry(now unit.Micros) {
	if x.calm != nil && slices.ContainsFunc(x.waiting, pressing) {
		time.AfterFunc(dangerTimeout-time.Duration(now-x.calmAt)*time.Microsecond, x.calm)
		x.calm = nil
	}
}

// next takes the decision to carry out now: danger first, the others at their rate and as far as the last step needs them. Where the steps have come
// to a standstill nobody is sent by what the last one has said of a node that is another by now: in danger after lapse, the others sooner.
func (x *Executor) next() (evict.Eviction, bool) {
	now := x.o.Clock()
	x.tokens = min(x.tokens+float64(now-x.tokensAt)/float64(micros(x.o.Every)), float64(x.o.Burst))
	x.tokensAt = now
	x.mu.Lock()
	defer x.mu.Unlock()
	age := now - x.followedAt
	if age >= x.o.lapse() {
		return evict.Eviction{}, false
	}
	i := slices.IndexFunc(x.waiting, pressing)
	if i >= 0 {
		evict.Take(x.decisions, &x.waiting[i])
	} else if x.tokens >= 1 && age < x.o.current() {
		i = slices.IndexFunc(x.waiting, func(e evict.Eviction) bool { return evict.Take(x.decisions, &e) })
		if i >= 0 {
			x.tokens--
		}
	}
	if i < 0 {
		return evict.Eviction{}, false
	}
	e := x.waiting[i]
	x.waiting = slices.Delete(x.waiting, i, i+1)
	x.asked = append(x.asked, e)
	return e, true
}

// tellDropped reports who was dropped since the last time.
func (x *Executor) tellDropped() {
	x.mu.Lock()
	dropped := x.dropped
	x.dropped = nil
	x.mu.Unlock()
	for _, r := range dropped {
		x.report(r)
	}
}
