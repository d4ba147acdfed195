// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/perf"
	"github.com/koord-rt/koord-rt/model/sample"
)

// cpis counts cycles and instructions of containers, a few of them at a time: counting takes two descriptors for each CPU, and makes
// every switch between cgroups dearer for as long as it lasts. Each container is counted for CPIWindow ticks, and again not before
// CPIEvery ticks have passed.
type cpis struct {
	count         func(path string, cpus []int) (counter, error)
	cpus          []int
	every, window uint64
	atOnce        int

	// queue are the containers that wait for their turn in this round; begun is the tick in which it began.
	queue  []*entry
	begun  uint64
	active []counting
	gone   map[*entry]bool
}

// counter is a running count.
type counter interface {
	Read() (perf.Counts, error)
	Close()
}

type counting struct {
	e     *entry
	since uint64
	counter
}

func newCPI(m *machine) (collector, support) {
	if m.opts.Topology == nil {
		return nil, support{no: "the topology is not known"}
	}
	fs, err := perf.Open(m.opts.Roots, m.opts.Cgroup)
	if err != nil {
		return nil, unless(err)
	}
	c := &cpis{
		count: func(path string, cpus []int) (counter, error) { return fs.Count(path, cpus) },
		cpus:  m.opts.Topology.All().List(), every: uint64(m.opts.CPIEvery), window: uint64(m.opts.CPIWindow), //nolint:gosec // positive
		gone: map[*entry]bool{},
	}
	return c.sized(m.opts.CPIDescriptors)
}

// sized sets how many containers are counted at once.
func (c *cpis) sized(descriptors int) (collector, support) {
	each := 2 * len(c.cpus)
	if c.atOnce = descriptors / each; c.atOnce == 0 {
		return nil, support{no: fmt.Sprintf("counting one container takes %d descriptors, allowed are %d", each, descriptors)}
	}
	return c, support{}
}

func (c *cpis) collect(t *tick) {
	c.finish(t)
	if len(c.queue) == 0 && len(c.active) == 0 && (c.begun == 0 || t.n-c.begun >= c.every) {
		c.begin(t)
	}
	for len(c.queue) > 0 && len(c.active) < c.atOnce {
		e := c.queue[0]
		c.queue = c.queue[1:]
		if !c.gone[e] && e.fresh {
			c.start(t, e)
		}
	}
}

// begin lines up all containers for a new round.
func (c *cpis) begin(t *tick) {
	c.begun = t.n
	c.queue = c.queue[:0:0]
	clear(c.gone)
	for _, p := range t.pods {
		c.queue = append(c.queue, p.containers...)
	}
}

func (c *cpis) start(t *tick, e *entry) {
	n, err := c.count(e.path, c.cpus)
	switch {
	case err == nil:
		c.active = append(c.active, counting{e, t.n, n})
	case !errors.Is(err, unix.ENOENT):
		t.fail(err)
	}
}

// finish reads and closes those whose window is over.
func (c *cpis) finish(t *tick) {
	kept := c.active[:0]
	for _, a := range c.active {
		if t.n-a.since < c.window {
			kept = append(kept, a)
			continue
		}
		counts, err := a.Read()
		a.Close()
		if _, ran := counts.CPI(); err == nil && ran {
			at := t.clock()
			t.emit(a.e.subject, sample.Cycles, counts.Cycles, at)
			t.emit(a.e.subject, sample.Instructions, counts.Instructions, at)
		} else if err != nil && !errors.Is(err, perf.ErrNotCounted) {
			t.fail(err)
		}
	}
	clear(c.active[len(kept):])
	c.active = kept
}

func (c *cpis) forget(e *entry) {
	if len(c.queue) > 0 {
		c.gone[e] = true
	}
	for i, a := range c.active {
		if a.e == e {
			a.Close()
			c.active = append(c.active[:i], c.active[i+1:]...)
			return
		}
	}
}

func (c *cpis) close() {
	for _, a := range c.active {
		a.Close()
	}
	c.active, c.queue = nil, nil
}
