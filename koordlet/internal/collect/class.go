// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// classes sums up pods by QoS class and by priority class, 0 where there is none. A class has no CPU in a tick in which one of its
// pods was read for the first time, and nothing before Follow. The cgroup of Kubernetes' BestEffort class has one all the same, with pods that
// nobody has told of yet. What BE may use at most is not measured: its set of CPUs is written to containers, and the class's cgroup does not tell
// (see decide).
type classes struct {
	sums [numQoS + numPriorities]total
	// below is the rate of the cgroup at path.
	below sample.Rate
	path  string
}

// total is one class.
type total struct {
	subject sample.Subject
	cores   float64
	memory  unit.Bytes
	// partial: a pod of it has no rate yet.
	partial bool
}

const (
	numQoS        = int(protocol.QoSSystem) + 1
	numPriorities = int(protocol.PriorityFree) + 1
)

func newClasses(*machine) (collector, support) {
	c := &classes{}
	for q := range numQoS {
		c.sums[q].subject = sample.OfQoS(protocol.QoS(q)) //nolint:gosec // below numQoS
	}
	for p := range numPriorities {
		c.sums[numQoS+p].subject = sample.OfPriority(protocol.PriorityClass(p)) //nolint:gosec // below numPriorities
	}
	return c, support{}
}

func (c *classes) collect(t *tick) {
	if !t.told {
		return
	}
	for i := range c.sums {
		c.sums[i] = total{subject: c.sums[i].subject}
	}
	for _, p := range t.pods {
		if p.fresh {
			c.sums[min(int(p.pod.QoS), numQoS-1)].add(&p.entry)
			c.sums[numQoS+min(int(p.pod.Priority), numPriorities-1)].add(&p.entry)
		}
	}
	at := t.clock()
	for i := range c.sums {
		s := &c.sums[i]
		if !s.partial {
			t.emit(s.subject, sample.CPUUsage, s.cores, at)
		}
		t.emit(s.subject, sample.MemoryUsage, float64(s.memory), at)
	}
	c.whole(t)
}

// whole emits the CPU of the BestEffort class's cgroup, which has been read with those of the pods.
func (c *classes) whole(t *tick) {
	if t.bestEffort == nil {
		c.path = ""
		return
	}
	if path := t.bestEffort.Path(); path != c.path {
		c.path, c.below = path, sample.Rate{}
	}
	for _, e := range t.parents {
		if e.path == c.path && e.fresh && e.counters.Have.Has(usage.CPUTime) {
			t.emitRate(sample.OfQoS(protocol.QoSBE), sample.ClassCPU, &c.below, e.counters.UsageNS, 1e-9, e.at)
		}
	}
}

func (s *total) add(e *entry) {
	if e.rated {
		s.cores += e.cores
	} else {
		s.partial = true
	}
	s.memory += e.counters.Memory.WithoutPageCache()
}
