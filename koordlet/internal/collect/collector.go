// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import "slices"

// collector measures one kind of thing.
type collector interface {
	// collect reads what is due in this tick and emits it.
	collect(t *tick)
}

// closer is a collector that holds descriptors of its own.
type closer interface{ close() }

// forgetter is a collector that keeps something for each entry.
type forgetter interface{ forget(e *entry) }

// changing is a collector that can do more or less from one time to another; now is called from any goroutine.
type changing interface{ now() support }

// support says what a collector can do on this machine. The zero value is everything.
type support struct {
	// no and less say why it cannot, or what it does without.
	no, less string
}

func (s support) state() (state, detail string) {
	switch {
	case s.no != "":
		return StateUnsupported, s.no
	case s.less != "":
		return StateDegraded, s.less
	}
	return StateActive, ""
}

// unless is unsupported when there is an error.
func unless(err error) support {
	if err != nil {
		return support{no: err.Error()}
	}
	return support{}
}

// every is how often a collector reads one subject.
type every uint8

const (
	eachTick every = iota
	slowly         // every Options.Slow ticks; what there is once per machine is still read each tick
	cpiTicks       // every Options.CPIEvery ticks
)

// collectors are all there are, in the order in which they run: who reads before who computes from it. Each line is a file.
var collectors = [...]struct {
	name  string
	every every
	make  func(*machine) (collector, support)
}{
	{"node", eachTick, newNode},
	{"pod", eachTick, newPods},
	{"container", eachTick, newContainers},
	{"hostapp", eachTick, newHostApps},
	{"class", eachTick, newClasses},
	{"system", eachTick, newSystem},
	{"numa", slowly, newNUMA},
	{"pagecache", eachTick, newPageCache},
	{"coldpage", slowly, newColdPages},
	{"psi", slowly, newPSI},
	{ClassPressure, eachTick, newClassPressure},
	{"rundelay", slowly, newRunDelay},
	{"reclaim", slowly, newReclaim},
	{"disk", slowly, newDisks},
	{"network", slowly, newNetwork},
	{"alloclatency", slowly, newAllocLatency}, // after psi and rundelay
	{"disklatency", slowly, newDiskLatency},   // after disk too
	{"rtt", slowly, newRTT},
	{"resctrl", slowly, newResctrl},
	{"cpi", cpiTicks, newCPI},
}

type running struct{ collector }

// start makes the collectors that this machine supports and that are wanted.
func (s *Scanner) start(m *machine) {
	ticks := [...]int{eachTick: 1, slowly: s.opts.Slow, cpiTicks: s.opts.CPIEvery}
	for _, c := range collectors {
		state := State{Collector: c.name, Every: ticks[c.every], Support: StateOff}
		if !slices.Contains(s.opts.Without, c.name) {
			made, can := c.make(m)
			state.Support, state.Detail = can.state()
			if can.no == "" {
				if c, ok := made.(changing); ok {
					s.changing[len(s.states)] = c
				}
				s.running = append(s.running, running{made})
			}
		}
		s.states = append(s.states, state)
	}
}

// each keeps a collector's own state of every entry.
type each[T any] struct{ m map[*entry]*T }

func (s *each[T]) of(e *entry) *T {
	v := s.m[e]
	if v == nil {
		if s.m == nil {
			s.m = map[*entry]*T{}
		}
		v = new(T)
		s.m[e] = v
	}
	return v
}

func (s *each[T]) forget(e *entry) { delete(s.m, e) }
