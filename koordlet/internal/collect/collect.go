// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package collect turns the kernel's counters into samples: one scanner, once a second, over the pods, containers and host
// applications that it is told of.
//
// Inputs are Targets and the files below the roots; output is batches of samples, given to a function. Counters become rates here,
// over the time between the two readings; a counter that was reset, and the first reading, yield nothing. Files that are read every
// tick stay open, four descriptors for a cgroup at most, and are read once, whoever needs them, and only where they can have changed
// (read.go). What is read less often is spread over the ticks, a tenth of the pods in each, so that no tick is long. A steady tick
// allocates nothing per pod or container.
//
// A collector is a file of this package and a line in the list of collector.go. It imports model/*, kernel/*, api/protocol and the
// standard library only; it neither logs nor writes.
package collect

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/sys"
	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Options of New.
type Options struct {
	// Roots and Cgroup, the version, are required.
	Roots  root.Roots
	Cgroup node.CgroupVersion
	// Now is required: microseconds of CLOCK_BOOTTIME, as BootClock reads it. It is asked once for each cgroup.
	Now func() unit.Micros
	// Topology is what NUMA and CPI need; without it they are unsupported.
	Topology *topo.Topology
	// Without names collectors that are not to run.
	Without []string
	// Slow is how many ticks pass between two readings of what is read less often; default 10.
	Slow int
	// CPIEvery and CPIWindow, in ticks, are how often each container's instructions are counted and for how long; default 60 and
	// 10. CPIDescriptors bounds what counting holds open; default 1024.
	CPIEvery, CPIWindow, CPIDescriptors int
}

// defaults of Options.
const (
	defaultSlow           = 10
	defaultCPIEvery       = 60
	defaultCPIWindow      = 10
	defaultCPIDescriptors = 1024
)

// Report is what happened in a scan.
type Report struct {
	// Samples were given to the sink. Cgroups are known in this tick, Spared of them without a look, because nothing in their pod
	// has run or was charged since; Gone of those that are followed do not exist.
	Samples, Cgroups, Spared, Gone int
	// Failed readings of any file, and the first one's error.
	Failed int
	Err    error
	// CPUs, NUMA and Disks are what became of the node's own: the times of its CPUs, the memory of all of its NUMA nodes, the list of
	// its disks.
	CPUs, NUMA, Disks Reading
}

// Reading is what became of one.
type Reading uint8

// The readings.
const (
	NotRead Reading = iota
	ReadWell
	ReadFailed
)

func outcome(err error) Reading {
	if err != nil {
		return ReadFailed
	}
	return ReadWell
}

// State is one collector on this machine.
type State struct {
	Collector string
	// Every is how many ticks pass between two readings of one subject; 1 is each tick.
	Every int
	// Support is StateActive, StateDegraded or StateUnsupported, Detail how or why.
	Support, Detail string
}

// Support of a collector, in the words of node.FeatureState.
const (
	StateActive      = "active"
	StateDegraded    = "degraded"
	StateUnsupported = "unsupported"
	StateOff         = "off"
)

// Scanner reads and rates. New, Follow and Scan as often as wanted, Close. Follow and Support may be called from any goroutine, the rest from one.
type Scanner struct {
	opts    Options
	running []running
	states  []State
	// changing are those of states that are not what they were at the start.
	changing map[int]changing
	tick     tick

	mu      sync.Mutex
	pending *Targets // not yet taken over by Scan
}

// machine is what collectors are made from.
type machine struct {
	opts  *Options
	proc  proc.FS
	sys   sys.FS
	usage *usage.FS
	// What collectors made before have found, for those that can do with either: pressure is what psi can, waits is why rundelay does
	// not know what tasks wait for beside the CPU, nil when it does.
	pressure support
	waits    error
}

// New opens what there is. A collector whose files are missing is unsupported, see Support; only a cgroup filesystem that cannot
// be read is an error.
func New(o Options) (*Scanner, error) {
	fs, err := usage.Open(o.Roots, o.Cgroup)
	if err != nil {
		return nil, fmt.Errorf("make scanner: %w", err)
	}
	fill(&o.Slow, defaultSlow)
	fill(&o.CPIEvery, defaultCPIEvery)
	fill(&o.CPIWindow, defaultCPIWindow)
	fill(&o.CPIDescriptors, defaultCPIDescriptors)
	s := &Scanner{opts: o, changing: map[int]changing{}}
	m := &machine{opts: &s.opts, proc: proc.FS(o.Roots.Proc), sys: sys.FS(o.Roots.Sys), usage: fs,
		pressure: support{no: "the collector psi is off"}, waits: errors.New("the collector rundelay is off")}
	s.tick = tick{
		usage: fs, clock: o.Now, buf: root.Get(), slow: uint64(o.Slow), //nolint:gosec // positive
		apart: o.Cgroup == node.CgroupV1, out: make([]sample.Sample, 0, batch),
	}
	s.start(m)
	return s, nil
}

func fill(field *int, def int) {
	if *field <= 0 {
		*field = def
	}
}

// Follow sets whom to measure from the next scan on. The slices belong to the scanner afterwards.
func (s *Scanner) Follow(t Targets) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = &t
}

// Watch has the CPU pressure of the pods that are not best effort read in each scan from the next one on, of 256 at most, until it is
// told otherwise: for whoever waits for it to end. It is called by who calls Scan.
func (s *Scanner) Watch(on bool) { s.tick.watch = on }

// Scan does one tick. sink gets the samples in batches whose slice is valid during the call only; those of one subject and source
// stand together.
func (s *Scanner) Scan(sink func([]sample.Sample)) Report {
	s.mu.Lock()
	next := s.pending
	s.pending = nil
	s.mu.Unlock()
	if next != nil {
		s.follow(next)
	}
	t := &s.tick
	t.begin(sink)
	for i := range s.running {
		s.running[i].collect(t)
	}
	t.flush()
	return t.report
}

// Support is every collector with its state now, in the order in which they run. It may be called from any goroutine.
func (s *Scanner) Support() []State {
	out := slices.Clone(s.states)
	for i, c := range s.changing {
		out[i].Support, out[i].Detail = c.now().state()
	}
	return out
}

// Close gives every descriptor back. Closing twice is no error.
func (s *Scanner) Close() {
	s.follow(&Targets{})
	for i := range s.running {
		if c, ok := s.running[i].collector.(closer); ok {
			c.close()
		}
	}
	s.running = nil
	if s.tick.buf != nil {
		s.tick.buf.Put()
		s.tick.buf = nil // closed twice, it would be given to two others
	}
}

// BootClock reads CLOCK_BOOTTIME: by a system call when half a second has passed since the last, by the runtime's own clock, which
// costs a tenth of it, in between. It never runs backwards, for several goroutines either.
func BootClock() func() unit.Micros {
	var mu sync.Mutex
	var base time.Time
	var at, last unit.Micros
	return func() unit.Micros {
		mu.Lock()
		defer mu.Unlock()
		past := time.Since(base)
		if past > 500*time.Millisecond {
			var ts unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err == nil {
				base, at, past = time.Now(), unit.Micros(ts.Nano()/1000), 0
			}
		}
		last = max(last, at+unit.Micros(past.Microseconds()))
		return last
	}
}
