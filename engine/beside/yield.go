// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package beside

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Yield is the kernel of a program that has others beside it who go first: while they cover the containers, direct writes
// are their own, and nothing is done twice. From the moment in which they are gone the writes are ours; the repair pass makes
// up for what lies between. What is asked for once, which is to take a value back, is in Left.
type Yield struct {
	engine.Kernel
	// Covered reports whether they do.
	Covered func() bool

	// mu is held over the question and its answer: nothing is left to others who have just gone without being in Left.
	mu   sync.Mutex
	left lately
}

// Apply implements engine.Kernel.
func (y *Yield) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	if y.leave(p, time.Now()) {
		return skipped(p)
	}
	return y.Kernel.Apply(ctx, p, gen)
}

// leave notes a plan that is left to the others; false when it is ours to write.
func (y *Yield) leave(p plan.Plan, now time.Time) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	if !y.Covered() {
		return false
	}
	y.left.add(p, now)
	return true
}

// Left is what was left to the others lately, once, for engine.TakeBack when they have gone.
func (y *Yield) Left() plan.Plan {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.left.take(time.Now())
}

// SyncUnits implements engine.Kernel.
func (y *Yield) SyncUnits(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	if !y.Covered() {
		return y.Kernel.SyncUnits(ctx, p, gen)
	}
	return skipped(p)
}

func skipped(p plan.Plan) []apply.Result {
	out := make([]apply.Result, len(p))
	for i := range p {
		out[i] = apply.Result{Setting: p[i], Outcome: apply.Skipped}
	}
	return out
}

// aWhile is for how long lately keeps a setting at least; twice as long at most. The others have the same news within two seconds and go
// by it in one pass: after a minute they have, and somebody else may have written there since.
const aWhile = time.Minute

// lately are the settings of the last while or two, each as it was last asked for.
type lately struct {
	since     time.Time // when the present while began
	now, last map[plan.ID]plan.Setting
}

func (l *lately) add(p plan.Plan, now time.Time) {
	l.age(now)
	for i := range p {
		if !p[i].Observe {
			l.now[p[i].ID()] = p[i]
		}
	}
}

func (l *lately) take(now time.Time) (p plan.Plan) {
	l.age(now)
	maps.Copy(l.last, l.now)
	for _, s := range l.last {
		p = append(p, s)
	}
	p.Sort()
	*l = lately{}
	return p
}

// age begins another while when the present one is over.
func (l *lately) age(now time.Time) {
	if l.now != nil && now.Sub(l.since) < aWhile {
		return
	}
	if l.last = l.now; l.last == nil || now.Sub(l.since) >= 2*aWhile {
		l.last = map[plan.ID]plan.Setting{}
	}
	l.now, l.since = map[plan.ID]plan.Setting{}, now
}
