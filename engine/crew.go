// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"runtime"
	"sync"
	"time"
)

// idleHands bounds the goroutines that wait for work. More events at once get goroutines of their own, which end.
const idleHands = 16

// crew runs guarded work on goroutines that stay: a fresh one begins with the smallest stack and copies it several
// times on its way down into a decision. Who was idle last is asked first: its stack is still in the caches.
type crew struct {
	mu    sync.Mutex
	idle  []chan func()
	ended bool
	late  sync.WaitGroup // work behind replies
}

// do starts f and returns at once.
func (c *crew) do(f func()) {
	c.mu.Lock()
	n := len(c.idle)
	if n == 0 {
		c.mu.Unlock()
		go c.work(f)
		return
	}
	hand := c.idle[n-1]
	c.idle = c.idle[:n-1]
	c.mu.Unlock()
	hand <- f
}

// behind has f run a moment after the reply that is about to be written. At once it would keep the runtime from reading it: a write to a socket
// wakes the reader on the writer's processor, which is expected to be free in a moment (WF_SYNC, kernel/sched/fair.c) and in real time is given
// up to nobody.
func (c *crew) behind(f func()) {
	c.late.Add(1)
	c.do(func() {
		defer c.late.Done()
		time.Sleep(rest)
		f()
	})
}

// rested returns when what replies have left behind is done, longest at most: a kernel that hangs must not keep the process from ending. Nothing may
// be left behind meanwhile.
func (c *crew) rested() {
	done := make(chan struct{})
	go func() {
		c.late.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(longest):
	}
}

// dismiss ends the goroutines that wait; later work gets goroutines that end with it.
func (c *crew) dismiss() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for _, hand := range c.idle {
		close(hand)
	}
	c.idle = nil
}

// stackKept is what a goroutine that waits has on its stack: the collector halves a stack of which less than a quarter is in use
// (runtime.shrinkstack), and the next event would copy it back to its size, some 30 µs, on its way down.
const stackKept = 8 << 10

func (c *crew) work(f func()) {
	var room [stackKept]byte
	defer runtime.KeepAlive(&room)
	hand := make(chan func(), 1) // do must not wait for a hand that has offered itself and does not listen yet
	for f != nil {
		f()
		c.mu.Lock()
		if c.ended || len(c.idle) >= idleHands {
			c.mu.Unlock()
			return
		}
		c.idle = append(c.idle, hand)
		c.mu.Unlock()
		f = <-hand
	}
}
