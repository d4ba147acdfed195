// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package boottime

import (
	"sync/atomic"
	"time"
)

// Clock is Now without a system call in most cases: the kernel is asked once in a while, and in between the process's own clock is added, which
// takes none. That one stands still while the machine sleeps; then the time of day runs ahead of it, and the kernel is asked again. What it tells is
// never ahead of Now, and behind it by about asking; by so much two goroutines may see it go back. The zero value is ready, and safe for concurrent
// use.
type Clock struct{ last atomic.Pointer[reading] }

// reading is what the kernel has told, and the process's clock and the time of day just after.
type reading struct {
	up       time.Duration
	at, wall time.Time
}

const (
	// trust is how long a reading counts.
	trust = time.Second
	// jump is how far the time of day may part from the process's clock meanwhile. Both are slewed alike (adjtimex(2)): what parts them is sleep, or
	// that somebody sets the time.
	jump = time.Millisecond
	// asking bounds what lies between the two clocks of one reading, tries how often it is made where more does: a thread may lose its processor.
	asking = 50 * time.Microsecond
	tries  = 3
)

// Now is the time since boot; 0 where the machine does not tell.
func (c *Clock) Now() time.Duration {
	now := time.Now()
	if r := c.last.Load(); r != nil && r.holds(now) {
		return r.up + now.Sub(r.at)
	}
	r := read()
	c.last.Store(r)
	return r.up
}

// read is the reading that took least.
func read() *reading {
	var best *reading
	for least, n := time.Duration(0), 0; n < tries && (best == nil || least > asking); n++ {
		before := time.Now()
		up := Now()
		after := time.Now()
		if took := after.Sub(before); best == nil || took <= least {
			best, least = &reading{up: up, at: after, wall: after.Round(0)}, took
		}
	}
	return best
}

// holds reports whether the reading still counts at now.
func (r *reading) holds(now time.Time) bool {
	ran := now.Sub(r.at)
	parted := now.Round(0).Sub(r.wall) - ran
	return r.up > 0 && ran < trust && parted.Abs() < jump
}
