// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"slices"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

// Follow takes all that a whole step has decided, and returns at once: its victims, and whether those of earlier steps whose turn has not come are
// still needed. Who is not is dropped; where that was not measured nobody is asked for, but in danger, of which the next measurement may come too
// late. Who waits too long for a measurement is dropped, too: with one he is chosen anew, if he still may be.
func (x *Executor) Follow(o *evict.Output) {
	now := x.o.Clock()
	x.mu.Lock()
	x.take(o.Evictions, now)
	x.decisions = slices.Clone(o.Decisions) // next takes from them
	for i := range x.asked {
		evict.Take(x.decisions, &x.asked[i])
	}
	n := len(x.dropped)
	x.waiting = slices.DeleteFunc(x.waiting, func(e evict.Eviction) bool {
		d := x.leaving[e.Pod]
		switch evict.RestOf(x.decisions, &e) {
		case evict.Needed:
			d.needed = now
			return false
		case evict.Unknown:
			if now-d.needed < micros(unknownFor) {
				return false
			}
		case evict.Enough:
		}
		x.dropped = append(x.dropped, Result{Eviction: e, Outcome: Dropped, Took: now - d.since})
		delete(x.leaving, e.Pod)
		return true
	})
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

// next takes the decision to carry out now: danger first, the others at their rate and as far as the last step needs them.
func (x *Executor) next() (evict.Eviction, bool) {
	now := x.o.Clock()
	x.tokens = min(x.tokens+float64(now-x.tokensAt)/float64(micros(x.o.Every)), float64(x.o.Burst))
	x.tokensAt = now
	x.mu.Lock()
	defer x.mu.Unlock()
	i := slices.IndexFunc(x.waiting, func(e evict.Eviction) bool { return !e.RespectBudget })
	if i >= 0 {
		evict.Take(x.decisions, &x.waiting[i])
	} else if x.tokens >= 1 {
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
