// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/systemd"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// unitPause lets the reply go first and gathers what is written to one unit in a row; unitsAtEnd bounds what is left
// when the plugin stops.
const (
	unitPause  = 5 * time.Millisecond
	unitsAtEnd = 2 * time.Second
)

// unitQueue are the values that are to become properties of their systemd units: a daemon-reload writes a unit's own
// values over whatever stands in the cgroup (D6). It talks D-Bus, so it works in the background.
type unitQueue struct {
	mu   sync.Mutex
	todo map[string]plan.Plan // by cgroup
	// done are the properties as they were set last.
	done map[string]map[plan.Knob]plan.Value
	wake chan struct{}
}

func newUnitQueue() *unitQueue {
	return &unitQueue{todo: map[string]plan.Plan{}, done: map[string]map[plan.Knob]plan.Value{}, wake: make(chan struct{}, 1)}
}

// unitWorkers bounds how many units are told at a time.
const unitWorkers = 8

// writeLimit bounds what a background write waits for memory to be reclaimed, unitLimit what systemd may take for one unit.
const (
	writeLimit = 10 * time.Second
	unitLimit  = 10 * time.Second
)

// write brings the kernel to a plan, and the units after it. Every plan that stays in force goes this way. A write that has to
// reclaim memory goes on by itself when the caller's time is over.
func (g *Engine) write(ctx context.Context, v *node.View, pl plan.Plan) []apply.Result {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, writeLimit)
		defer cancel()
	}
	results := g.o.Kernel.Apply(ctx, pl, v.Generation)
	g.noteUnits(v, results)
	return results
}

// noteUnits has the units follow what was written, after systemd was asked who wrote over it.
func (g *Engine) noteUnits(v *node.View, results []apply.Result) {
	if g.drifted.add(results) {
		g.units.rouse()
	}
	if !v.Kernel.Systemd {
		return
	}
	var stands plan.Plan
	for i := range results {
		r := &results[i]
		switch r.Outcome {
		case apply.Written, apply.Pending:
			// Somebody had written over it, perhaps with the unit's own value.
			g.units.stale(r.Setting)
			stands = append(stands, r.Setting)
		case apply.Unchanged:
			stands = append(stands, r.Setting)
		}
	}
	g.units.add(stands)
}

// inUnit lets values be properties that the runtime has written from the container's spec.
func (g *Engine) inUnit(v *node.View, pl plan.Plan) {
	if v.Kernel.Systemd {
		g.units.add(direct(pl))
	}
}

// stale forgets that a property was set.
func (q *unitQueue) stale(s plan.Setting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.done[s.Target.Cgroup], s.Knob)
}

// add queues the settings of the units for which one of them is news; quota and period are one property to the reader.
func (q *unitQueue) add(pl plan.Plan) {
	q.mu.Lock()
	defer q.mu.Unlock()
	pl = unitSettings(pl)
	news := map[string]bool{}
	for i := range pl {
		s := &pl[i]
		if have, ok := q.done[s.Target.Cgroup][s.Knob]; !ok || have != s.Value {
			news[s.Target.Cgroup] = true
		}
	}
	for i := range pl {
		s := &pl[i]
		todo := q.todo[s.Target.Cgroup]
		if j := slices.IndexFunc(todo, func(o plan.Setting) bool { return o.Knob == s.Knob }); j >= 0 {
			todo[j] = *s // also where it is no news: what is queued would be set over it
			continue
		}
		if news[s.Target.Cgroup] {
			q.todo[s.Target.Cgroup] = append(todo, *s)
		}
	}
	if len(news) > 0 {
		q.rouse()
	}
}

// rouse wakes the loop.
func (q *unitQueue) rouse() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// unitSettings are the settings of a plan that can be properties. The weight of an idle cgroup cannot: to systemd idle is one.
func unitSettings(pl plan.Plan) plan.Plan {
	out := make(plan.Plan, 0, len(pl))
	for i := range pl {
		s := &pl[i]
		if !isUnit(s) {
			continue
		}
		if s.Knob == plan.CPUShares {
			if idle := pl.Find(s.Target, plan.CPUIdle, ""); idle != nil && !idle.Observe && idle.Value.Int() > 0 {
				continue
			}
		}
		out = append(out, *s)
	}
	return out
}

// isUnit reports settings that systemd has a property for, of a cgroup that is a unit. On cgroup v1 it has fewer: SyncUnits skips the others.
func isUnit(s *plan.Setting) bool {
	if s.Observe || !systemd.Mapped(s.Knob, false) || s.Target.Level == plan.LevelGroup {
		return false
	}
	_, err := systemd.Unit(s.Target.Cgroup)
	return err == nil
}

// waiting lists the units that are queued.
func (q *unitQueue) waiting() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Sorted(maps.Keys(q.todo))
}

// take takes what is queued of one unit. Until it is set, every value is news: what comes meanwhile must be set behind it.
func (q *unitQueue) take(dir string) plan.Plan {
	q.mu.Lock()
	defer q.mu.Unlock()
	pl := q.todo[dir]
	delete(q.todo, dir)
	for i := range pl {
		delete(q.done[dir], pl[i].Knob)
	}
	return pl
}

// retry keeps what could not be set, unless something newer is queued: what was taken back nobody writes or looks at any more.
func (q *unitQueue) retry(s plan.Setting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	todo := q.todo[s.Target.Cgroup]
	if !slices.ContainsFunc(todo, func(o plan.Setting) bool { return o.Knob == s.Knob }) {
		q.todo[s.Target.Cgroup] = append(todo, s)
	}
}

// keep notes a property that has been set.
func (q *unitQueue) keep(s plan.Setting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.done[s.Target.Cgroup]
	if m == nil {
		m = map[plan.Knob]plan.Value{}
		q.done[s.Target.Cgroup] = m
	}
	m[s.Knob] = s.Value
}

// forget drops a unit that has ended.
func (q *unitQueue) forget(dir string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.todo, dir)
	delete(q.done, dir)
}

// again forgets all that was set: its meaning has changed.
func (q *unitQueue) again() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.done)
}

// unitsLoop works off the queue until ctx ends.
func (g *Engine) unitsLoop(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		g.shielded("drift", func() {
			g.hear(ctx, false)
			g.Attribute(ctx, g.drifted.take())
		})
		g.shielded("units", func() { g.syncUnits(ctx) })
		g.pulses.units.rest()
		select {
		case <-ctx.Done():
			return
		case <-g.units.wake:
		}
		pause.Reset(unitPause)
	}
}

// syncUnits sets the properties that are queued. What fails is tried again when the value is written or looked at next,
// at the latest by the drift check. What a unit is to have is taken at its turn: while systemd was at the units before it, newer
// values may have been written, which those of a moment ago would undo in the kernel. What is left when ctx ends stays queued for
// the end of the program, which has time of its own. Several are at work at once: one whose cgroup is being written to, for seconds where
// memory is reclaimed, holds up no other.
func (g *Engine) syncUnits(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	free := make(chan struct{}, unitWorkers)
	for _, dir := range g.units.waiting() {
		free <- struct{}{}
		if ctx.Err() != nil {
			return
		}
		g.beat(&g.pulses.units)
		all.Go(func() {
			defer func() { <-free }()
			g.shielded("units", func() {
				if pl := g.units.take(dir); len(pl) > 0 {
					g.syncUnit(ctx, pl)
				}
			})
		})
	}
}

// syncUnit sets the properties of one unit.
func (g *Engine) syncUnit(ctx context.Context, pl plan.Plan) {
	ctx, cancel := context.WithTimeout(ctx, unitLimit)
	defer cancel()
	for _, r := range g.o.Kernel.SyncUnits(ctx, pl, g.views.Load().Generation) {
		switch {
		case r.Err != nil:
			g.problem(r.Setting.Target.String(), "systemd property of "+r.Setting.Knob.String(), r.Err.Error())
			if r.Outcome == apply.Failed && len(g.o.Kernel.Verify(plan.Plan{r.Setting})) == 0 { // else it has ended, or is another's turn
				g.units.retry(r.Setting)
			}
		case r.Outcome == apply.Written || r.Outcome == apply.Skipped: // what has no property is no news the next time
			g.units.keep(r.Setting)
		}
	}
}
