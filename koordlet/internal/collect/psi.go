// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"errors"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/psi"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// pressures tells pressure stall information: the kernel's average over 10 s as a ratio, and, but of containers, the growth of its
// total, which is exact for the interval between two readings: of "some", and of the node of "full", which nobody asks for of others.
//
// A pod that its own limits stop waits for CPUs because of them: for how long they did is told of the same interval, which is what nobody else
// has done of the growth.
//
// Cgroups are read slowly; the CPU pressure of pods that are watched (Scanner.Watch) in each tick. Whenever a task of a container
// waits, some task of its pod does: a container whose averages are zero is read again when its pod's total has grown.
type pressures struct {
	files [len(resources)]*root.File[psi.Stat]
	node  pressure
	of    each[pressure]
	now   psi.Stat
}

// pressure is one subject's totals.
type pressure struct {
	some, full [len(resources)]sample.Rate
	own        sample.Rate // of entry.own, each time that some of the CPU is taken
	// absent counts readings without a pressure file; then it is looked for less often.
	absent uint32
	last   [len(resources)]level
}

// level is what a file said at the last slow turn.
type level struct {
	total uint64 // of "some"
	known bool
	// grew: since the turn before, or that is not known. zero: it has not, and the averages are 0.
	grew, zero bool
	full       bool // has "full"
}

// resources names the files and their metrics.
var resources = [...]struct {
	name                             string
	some, full, someStall, fullStall sample.Metric
}{
	{"cpu", sample.PSICPUSome, sample.PSICPUFull, sample.StallCPUSome, sample.StallCPUFull},
	{"memory", sample.PSIMemorySome, sample.PSIMemoryFull, sample.StallMemorySome, sample.StallMemoryFull},
	{"io", sample.PSIIOSome, sample.PSIIOFull, sample.StallIOSome, sample.StallIOFull},
}

// lazyPressure: a cgroup without pressure files is asked at one in so many turns.
const lazyPressure = 30

// Places in resources; maxWatched bounds the pods that are read in each tick.
const (
	cpuPressure    = 0
	memoryPressure = 1
	ioPressure     = 2
	maxWatched     = 256
)

func newPSI(m *machine) (c collector, can support) {
	defer func() { m.pressure = can }()
	return openPSI(m)
}

func openPSI(m *machine) (collector, support) {
	c := &pressures{}
	for i, r := range resources {
		f, err := root.NewFile(m.proc.Path("pressure"), r.name, psi.Parse)
		if err != nil {
			c.close()
			return nil, support{no: "no pressure accounting, CONFIG_PSI or psi=1 is missing: " + err.Error()}
		}
		c.files[i] = f
	}
	if m.opts.Cgroup == node.CgroupV1 {
		return c, support{less: "cgroup v1 has pressure of the node, and of those cgroups alone that are also in a unified hierarchy " +
			"or on an Anolis kernel"}
	}
	return c, support{}
}

func (c *pressures) collect(t *tick) {
	for i, f := range c.files {
		if err := f.Read(t.buf, &c.now); err != nil {
			t.fail(err)
			continue
		}
		c.node.emit(t, sample.OfNode(), i, &c.now, t.clock())
	}
	watched := 0
	for _, p := range t.pods {
		switch {
		case !p.fresh:
		case t.due(&p.entry):
			c.pod(t, p)
		case t.watch && p.pod.QoS != protocol.QoSBE && watched < maxWatched:
			watched++
			c.of.of(&p.entry).glance(t, &p.entry, &c.now)
		}
	}
	for _, a := range t.apps {
		if a.fresh && t.due(a) {
			c.of.of(a).read(t, a, nil, &c.now)
		}
	}
}

func (c *pressures) pod(t *tick, p *podEntry) {
	above := c.of.of(&p.entry)
	above.read(t, &p.entry, nil, &c.now)
	for _, e := range p.containers {
		if e.fresh {
			c.of.of(e).read(t, e, above, &c.now)
		}
	}
}

// read takes the slow turn of an entry; above is its pod's, which has had its own, nil for who has none.
func (p *pressure) read(t *tick, e *entry, above *pressure, now *psi.Stat) {
	e.stalled = [len(resources)]figure{}
	if p.absent > 1 && p.absent%lazyPressure != 0 {
		p.absent++
		return
	}
	for i, r := range resources {
		l := &p.last[i]
		if above != nil && l.zero && above.last[i].known && !above.last[i].grew {
			*now = psi.Stat{Some: psi.Line{TotalUS: l.total}, HasFull: l.full}
			e.stalled[i] = p.tell(t, e, i, now)
			continue
		}
		switch err := e.cg.Pressure(t.buf, r.name, now); {
		case errors.Is(err, usage.ErrNoFile):
			p.absent++
			return
		case err != nil:
			t.fail(err)
		default:
			p.absent = 0
			l.take(now)
			e.stalled[i] = p.tell(t, e, i, now)
		}
	}
}

// take notes a reading. The averages follow the total by two seconds: only when it has stood for a whole turn are zeros final.
func (l *level) take(s *psi.Stat) {
	grew := !l.known || l.total != s.Some.TotalUS
	*l = level{
		total: s.Some.TotalUS, known: true, grew: grew, zero: !grew && s.Some.Avg10 == 0 && s.Full.Avg10 == 0, full: s.HasFull,
	}
}

// glance reads the CPU pressure of a pod between its turns.
func (p *pressure) glance(t *tick, e *entry, now *psi.Stat) {
	if p.absent > 0 {
		return
	}
	switch err := e.cg.Pressure(t.buf, resources[cpuPressure].name, now); {
	case errors.Is(err, usage.ErrNoFile):
	case err != nil:
		t.fail(err)
	default:
		p.tell(t, e, cpuPressure, now)
	}
}

// tell emits a reading of an entry, and what a pod's own limits made of it: only where they did, as most never do.
func (p *pressure) tell(t *tick, e *entry, i int, s *psi.Stat) (stalled figure) {
	at := t.clock()
	if i == cpuPressure && e.subject.Kind == sample.Pod {
		if d, ok := p.own.Next(e.own.ns, at); ok && d.Count > 0 {
			t.emit(e.subject, sample.StallCPUOwn, d.PerSecond()/1000, at)
		}
	}
	return p.emit(t, e.subject, i, s, at)
}

// percent is what the kernel's hundredths of a percent are, as a ratio.
const percent = 1.0 / 10000

// emit returns by how much "some" has grown, in microseconds per second, which it emits but of containers.
func (p *pressure) emit(t *tick, subject sample.Subject, i int, s *psi.Stat, at unit.Micros) (stalled figure) {
	r := &resources[i]
	t.emit(subject, r.some, float64(s.Some.Avg10)*percent, at)
	if s.HasFull {
		t.emit(subject, r.full, float64(s.Full.Avg10)*percent, at)
	}
	if d, ok := p.some[i].Next(s.Some.TotalUS, at); ok {
		stalled = figure{d.PerSecond(), true}
	}
	if subject.Kind == sample.Container {
		return stalled
	}
	if stalled.known {
		t.emit(subject, r.someStall, stalled.value, at)
	}
	if s.HasFull && subject.Kind == sample.Node {
		t.emitRate(subject, r.fullStall, &p.full[i], s.Full.TotalUS, 1, at)
	}
	return stalled
}

func (c *pressures) forget(e *entry) { c.of.forget(e) }

func (c *pressures) close() {
	for _, f := range c.files {
		if f != nil {
			f.Close()
		}
	}
}
