// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import "time"

// Background work goes on for a stint and then rests, for the shortest time that the network poller can sleep. A program
// with one processor (koord-nri) sees an event of the runtime when nothing else can run, not before.
const (
	stint = 250 * time.Microsecond
	rest  = time.Millisecond
)

// yields bounds how often work gives way to calls: a kernel that hangs holds them up as well, and some wait for work.
const yields = 2

// giveWay rests while somebody serves a call. Who does has handed it on and waits (Guard): work that begins meanwhile would have the processor first.
func (g *Engine) giveWay() {
	for n := 0; n < yields && g.watch.serves(); n++ {
		time.Sleep(rest)
	}
}

// behind has f run a moment after the reply that is about to be written, and not in the midst of another call.
func (g *Engine) behind(f func()) {
	g.crew.behind(func() {
		g.giveWay()
		f()
	})
}

// pace is one goroutine's.
type pace struct {
	began   time.Time
	giveWay func() // before each stint
}

func (g *Engine) pace() pace { return pace{giveWay: g.giveWay} }

// Pace is the pace of one goroutine of the host's that works in the background: its result is called between two pieces of its work.
func (g *Engine) Pace() (step func()) {
	p := g.pace()
	return p.step
}

// step is called between two pieces of work, and before the first.
func (p *pace) step() {
	if !p.began.IsZero() {
		if time.Since(p.began) < stint {
			return
		}
		time.Sleep(rest)
	}
	p.giveWay()
	p.began = time.Now()
}
