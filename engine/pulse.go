// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// stuckAfter is far longer than any piece of work takes: what may wait for the kernel, systemd or the runtime has a limit of its own.
const stuckAfter = time.Minute

// pulse tells since when a loop has been at one piece of work: nanoseconds of the engine's life, 0 while it waits for work.
type pulse struct{ since atomic.Int64 }

func (p *pulse) rest() { p.since.Store(0) }

// pulses are those of the loops that Run keeps going.
type pulses struct {
	jobs, repair, units pulse
	// asked is when Stuck has put its question into the queue of jobs; 0 when it has been answered.
	asked atomic.Int64
}

// beat begins a piece of work.
func (g *Engine) beat(p *pulse) { p.since.Store(g.age()) }

// age is how long the engine has been there, in nanoseconds and never 0; the clock's jumps are not in it.
func (g *Engine) age() int64 { return int64(g.o.Now().Sub(g.born)) + 1 }

// Stuck names a loop that does not go on: it has been at one piece of work for a minute, or nobody takes what is put into its
// queue. It is nil while all of them go on. It never waits, and is meant to be called now and then, by a watchdog: each call looks for
// the answer to the one before, which has to pass the queue of jobs and the locks that handlers need.
func (g *Engine) Stuck() error {
	now := g.age()
	for _, loop := range [...]struct {
		name string
		of   *pulse
	}{{"jobs", &g.pulses.jobs}, {"repair", &g.pulses.repair}, {"units", &g.pulses.units}} {
		if since := loop.of.since.Load(); since != 0 && now-since > int64(stuckAfter) {
			return fmt.Errorf("the loop of %s has been at one piece of work for %s", loop.name, time.Duration(now-since).Round(time.Second))
		}
	}
	if asked := g.pulses.asked.Load(); asked != 0 {
		if now-asked > int64(stuckAfter) && g.pulses.jobs.since.Load() == 0 {
			return fmt.Errorf("nobody has taken a job for %s", time.Duration(now-asked).Round(time.Second))
		}
		return nil
	}
	g.pulses.asked.Store(now)
	g.jobs.add(func(context.Context) {
		g.reg.counts()
		g.views.pass()
		g.unsettled.pass()
		g.moves.pass()
		g.pulses.asked.Store(0)
	})
	return nil
}

// pass goes through the lock and out again.
func (b *Views) pass() {
	b.mu.Lock()
	defer b.mu.Unlock()
}

func (u *unsettled) pass() {
	u.mu.Lock()
	defer u.mu.Unlock()
}

func (m *moves) pass() {
	m.mu.Lock()
	defer m.mu.Unlock()
}
