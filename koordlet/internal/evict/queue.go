// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"slices"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

// Submit takes decisions and returns at once. A pod that is leaving already is not evicted again, but a decision in danger
// hurries one that still waits.
func (x *Executor) Submit(evictions []evict.Eviction) {
	now := x.o.Clock()
	x.mu.Lock()
	x.take(evictions, now)
	x.mu.Unlock()
	x.rouse()
}

// Follow takes all that a whole step has decided: its victims, and whether those of earlier steps whose turn has not come are still needed. Who is
// not is dropped; where that was not measured nobody is asked for, but in danger, of which the next measurement may come too late.
func (x *Executor) Follow(o *evict.Output) {
	now := x.o.Clock()
	x.mu.Lock()
	x.take(o.Evictions, now)
	x.decisions = o.Decisions
	n := len(x.dropped)
	x.waiting = slices.DeleteFunc(x.waiting, func(e evict.Eviction) bool {
		if evict.RestOf(x.decisions, &e) != evict.Enough {
			return false
		}
		x.dropped = append(x.dropped, Result{Eviction: e, Outcome: Dropped, Took: now - x.leaving[e.Pod].since})
		delete(x.leaving, e.Pod)
		return true
	})
	news := len(o.Evictions) > 0 || len(x.dropped) > n
	x.mu.Unlock()
	if news {
		x.rouse()
	}
}

func (x *Executor) take(evictions []evict.Eviction, now unit.Micros) {
	for _, e := range evictions {
		if d := x.leaving[e.Pod]; d == nil {
			x.leaving[e.Pod] = &departure{eviction: e, since: now}
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

// rouse has Run look at what is new.
func (x *Executor) rouse() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// next takes the decision to carry out now: danger first, the others at their rate.
func (x *Executor) next() (evict.Eviction, bool) {
	now := x.o.Clock()
	x.tokens = min(x.tokens+float64(now-x.tokensAt)/float64(micros(x.o.Every)), float64(x.o.Burst))
	x.tokensAt = now
	x.mu.Lock()
	defer x.mu.Unlock()
	i := slices.IndexFunc(x.waiting, func(e evict.Eviction) bool { return !e.RespectBudget })
	if i < 0 && x.tokens >= 1 {
		i = slices.IndexFunc(x.waiting, func(e evict.Eviction) bool { return evict.RestOf(x.decisions, &e) != evict.Unknown })
		if i >= 0 {
			x.tokens--
		}
	}
	if i < 0 {
		return evict.Eviction{}, false
	}
	e := x.waiting[i]
	x.waiting = slices.Delete(x.waiting, i, i+1)
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
