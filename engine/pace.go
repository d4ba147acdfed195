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

// pace is one goroutine's. The zero value begins with the first step.
type pace struct{ began time.Time }

// step is called between two pieces of work.
func (p *pace) step() {
	now := time.Now()
	if !p.began.IsZero() && now.Sub(p.began) < stint {
		return
	}
	if !p.began.IsZero() {
		time.Sleep(rest)
		now = time.Now()
	}
	p.began = now
}
