// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package beside

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/daemon/boottime"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
)

// grace bounds the time between the end of those who went first and the first write of ours: in it the runtime is asked
// for what they knew better. One that does not answer must not leave the containers to nobody.
const grace = 3 * time.Second

// In intervals: patience is how long those who go first have for what was seen to differ, which is twice their own drift
// check; after outdated without being asked for, a value is not wanted any more; after tolerated, what is let stand is looked
// into again.
const (
	patience  = 2
	outdated  = 2
	tolerated = 6
)

// Options of NewWard. All are required unless a comment says otherwise.
type Options struct {
	Kernel engine.Kernel
	Watch  *Watch
	// RunDir has the ledgers of the others.
	RunDir string
	// Interval of reading back, which is the one in which the engine asks for everything anew.
	Interval time.Duration
	// Lost is called when nobody covers the containers any more. Whoever is told learns what the others knew, and calls
	// Release; after three seconds that is done without him.
	Lost func()
	// Released is called when the engine's writes go to the kernel again: all of them are due.
	Released func()
	// Mended takes what the ward has written by itself.
	Mended func([]apply.Result)
	// Trouble takes what went wrong: ledgers that cannot be read.
	Trouble func(error)
	Log     *slog.Logger
	// Boot is the kernel's boot id: what the ledgers have of it is compared by the machine's own clock. Without one, as with records of
	// another boot, by the time of day, which may have been set back.
	Boot string
	// Now defaults to time.Now, Up, which is the machine's own clock, to boottime.Now.
	Now func() time.Time
	Up  func() time.Duration
}

// Ward is Yield for a program that looks after what it has left to others: it reads back what its engine wanted, and mends
// what they leave lying for two intervals. What they have recorded as their own word is left to them even if the engine
// wants it otherwise, and when the last of them goes, nothing is written before it was learned what they knew.
type Ward struct {
	engine.Kernel
	o     Options
	first []string

	// turn is held while something is mended: what the engine wants later is written after it.
	turn sync.Mutex
	// mu guards what follows; it is never held during IO.
	mu sync.Mutex
	// holding: nothing of the engine's is written.
	holding bool
	// lost is since when nobody covers the containers although we hold still; zero otherwise.
	lost time.Time
	// lookAt is when everything is read back next.
	lookAt time.Time
	left   map[plan.ID]*want
	// mended are values of ours whose units do not know them yet.
	mended map[plan.ID]bool
}

var _ engine.Kernel = (*Ward)(nil)

// want is one setting that was left to the others.
type want struct {
	setting plan.Setting
	gen     uint64
	// first and again are when this value was wanted first and last; right is when it was last seen to stand, wrong since
	// when it is seen not to.
	first, again, right, wrong time.Time
	// up is first by the machine's own clock.
	up time.Duration
	// was are the values that were wanted until a short while before first, newest last.
	was []past
	// let is what stands instead and is let stand since letAt: the others want it, or we cannot change it. nil for nothing.
	let   *apply.Mismatch
	letAt time.Time
}

// past is a value that was wanted until then.
type past struct {
	value plan.Value
	until time.Time
}

// maxPast bounds how many of them are kept: those of a loop that decides every second, for the longest interval.
const maxPast = 600

// follow is the want that comes after x, nil for the first.
func (x *want) follow(now time.Time, up, interval time.Duration) *want {
	next := &want{first: now, up: up}
	if x != nil {
		recent := slices.IndexFunc(x.was, func(p past) bool { return now.Sub(p.until) < interval })
		if recent < 0 {
			recent = len(x.was)
		}
		next.was = append(slices.Clone(x.was[max(recent, len(x.was)-maxPast+1):]), past{x.setting.Value, now})
	}
	return next
}

// NewWard makes a Ward, which looks who is there at once.
func NewWard(o Options) *Ward {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Up == nil {
		o.Up = boottime.Now
	}
	w := &Ward{Kernel: o.Kernel, o: o, first: o.Watch.first, left: map[plan.ID]*want{}, mended: map[plan.ID]bool{}}
	if w.holding = o.Watch.Now(); w.holding {
		o.Log.Info("containers are left to the writer that goes first")
	}
	return w
}

// Holding reports whether the engine's writes are left to others.
func (w *Ward) Holding() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.holding
}

// Apply implements engine.Kernel.
func (w *Ward) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	if w.leave(p, gen, w.o.Now()) {
		return skipped(p)
	}
	w.take(p)
	return w.Kernel.Apply(ctx, p, gen)
}

// leave notes a plan for reading back; false when it is ours to write.
func (w *Ward) leave(p plan.Plan, gen uint64, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.holding {
		return false
	}
	for i := range p {
		if p[i].Observe {
			continue
		}
		id := p[i].ID()
		x := w.left[id]
		if x == nil || x.setting.Value != p[i].Value {
			x = x.follow(now, w.o.Up(), w.o.Interval)
			w.left[id] = x
		}
		x.setting, x.gen, x.again = p[i], gen, now
	}
	return true
}

// take forgets what was left, because it is written now; what is being mended comes before it.
func (w *Ward) take(p plan.Plan) {
	w.turn.Lock()
	defer w.turn.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.left) == 0 {
		return
	}
	for i := range p {
		delete(w.left, p[i].ID())
	}
}

// SyncUnits implements engine.Kernel. What was mended goes to its unit, which would undo it at the next daemon-reload.
func (w *Ward) SyncUnits(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	ours, at, all := w.ourUnits(p)
	if all {
		return w.Kernel.SyncUnits(ctx, p, gen)
	}
	out := skipped(p)
	if len(ours) > 0 {
		for i, r := range w.Kernel.SyncUnits(ctx, ours, gen) {
			out[at[i]] = r
		}
	}
	return out
}

// ourUnits is the part of a plan that was mended, with its places, once.
func (w *Ward) ourUnits(p plan.Plan) (ours plan.Plan, at []int, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.holding {
		return nil, nil, true
	}
	for i := range p {
		if id := p[i].ID(); w.mended[id] {
			delete(w.mended, id)
			ours, at = append(ours, p[i]), append(at, i)
		}
	}
	return ours, at, false
}

// Forget implements engine.Kernel.
func (w *Ward) Forget(targets ...plan.Target) error {
	w.mu.Lock()
	for _, t := range targets {
		isOf := func(o plan.Target) bool {
			return o.Level == t.Level && o.Container == t.Container && o.Cgroup == t.Cgroup
		}
		maps.DeleteFunc(w.left, func(id plan.ID, _ *want) bool { return isOf(id.Target) })
		maps.DeleteFunc(w.mended, func(id plan.ID, _ bool) bool { return isOf(id.Target) })
	}
	w.mu.Unlock()
	return w.Kernel.Forget(targets...)
}

// Run works until ctx ends. Then, with nobody else there, the engine's last writes are its own.
func (w *Ward) Run(ctx context.Context) error {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if !w.o.Watch.Now() {
				w.mu.Lock()
				w.release(w.o.Now())
				w.mu.Unlock()
			}
			return nil
		case <-tick.C:
			w.Tend(ctx, w.o.Now())
		}
	}
}

// Tend looks who is there, and reads back what was left to them when it is time. Run does it every second.
func (w *Ward) Tend(ctx context.Context, now time.Time) {
	news := w.turnTo(w.o.Watch.Now(), now)
	if news != nil {
		news()
	}
	w.mu.Lock()
	holding, some, at := w.holding, len(w.left) > 0, w.lookAt
	due := holding && !now.Before(at)
	if due {
		w.lookAt = now.Add(w.o.Interval)
	}
	w.mu.Unlock()
	switch {
	case due:
		w.look(ctx, now, patience*w.o.Interval)
	case !holding && some && !now.Before(at):
		// What is still wanted the engine has written since. This is what it wanted to take back, and said once.
		w.look(ctx, now, 0)
		w.mu.Lock()
		if !w.holding {
			clear(w.left)
			clear(w.mended)
		}
		w.mu.Unlock()
	}
}

// turnTo follows the others' coming and going; it returns who is to be told of it.
func (w *Ward) turnTo(covered bool, now time.Time) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case covered:
		if !w.holding {
			w.o.Log.Info("containers are left to the writer that goes first")
			w.lookAt = now.Add(w.o.Interval)
		}
		w.holding, w.lost = true, time.Time{}
	case !w.holding:
	case w.lost.IsZero():
		w.o.Log.Info("the writer that went first has gone, its containers are taken over")
		w.lost = now
		return w.o.Lost
	case now.Sub(w.lost) >= grace:
		w.release(now)
		return w.o.Released
	}
	return nil
}

// Release ends the time after Lost: what the others knew is known. It is nothing at any other time.
func (w *Ward) Release() {
	w.mu.Lock()
	lost := !w.lost.IsZero()
	if lost {
		w.release(w.o.Now())
	}
	w.mu.Unlock()
	if lost {
		w.o.Released()
	}
}

// release lets the engine write. The lock is held.
func (w *Ward) release(now time.Time) {
	w.holding, w.lost, w.lookAt = false, time.Time{}, now.Add(w.o.Interval)
}
