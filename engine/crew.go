// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"sync"
	"sync/atomic"
)

// idleHands bounds the goroutines that wait for work. More events at once get goroutines of their own, which end.
const idleHands = 16

// crew runs guarded work on goroutines that stay: a fresh one begins with the smallest stack and copies it several
// times on its way down into a decision.
type crew struct {
	tasks chan func()
	idle  atomic.Int32
	ended chan struct{}
	end   sync.Once
}

func newCrew() *crew { return &crew{tasks: make(chan func()), ended: make(chan struct{})} }

// do starts f and returns at once.
func (c *crew) do(f func()) {
	select {
	case c.tasks <- f:
	default:
		go c.work(f)
	}
}

// dismiss ends the goroutines that wait; later work gets goroutines that end with it.
func (c *crew) dismiss() { c.end.Do(func() { close(c.ended) }) }

func (c *crew) work(f func()) {
	for {
		f()
		f = nil
		if c.idle.Add(1) > idleHands {
			c.idle.Add(-1)
			return
		}
		select {
		case f = <-c.tasks:
			c.idle.Add(-1)
		case <-c.ended:
			c.idle.Add(-1)
			return
		}
	}
}
