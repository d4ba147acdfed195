// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"errors"

	"github.com/koord-rt/koord-rt/kernel/psi"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// pressures tells pressure stall information: the kernel's average over 10 s as a ratio, and, but of containers, the growth of its
// total, which is exact for the interval between two readings.
type pressures struct {
	files [len(resources)]*root.File[psi.Stat]
	node  pressure
	of    each[pressure]
	now   psi.Stat
}

// pressure is one subject's totals.
type pressure struct {
	some, full [len(resources)]sample.Rate
	// absent counts readings without a pressure file; then it is looked for less often.
	absent uint32
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

func newPSI(m *machine) (collector, support) {
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
	for e := range t.entries() {
		if e.fresh && t.due(e) {
			c.of.of(e).read(t, e, &c.now)
		}
	}
}

func (p *pressure) read(t *tick, e *entry, now *psi.Stat) {
	if p.absent > 1 && p.absent%lazyPressure != 0 {
		p.absent++
		return
	}
	for i, r := range resources {
		switch err := e.cg.Pressure(t.buf, r.name, now); {
		case errors.Is(err, usage.ErrNoFile):
			p.absent++
			return
		case err != nil:
			t.fail(err)
		default:
			p.absent = 0
			p.emit(t, e.subject, i, now, t.clock())
		}
	}
}

// percent is what the kernel's hundredths of a percent are, as a ratio.
const percent = 1.0 / 10000

func (p *pressure) emit(t *tick, subject sample.Subject, i int, s *psi.Stat, at unit.Micros) {
	r := &resources[i]
	t.emit(subject, r.some, float64(s.Some.Avg10)*percent, at)
	if s.HasFull {
		t.emit(subject, r.full, float64(s.Full.Avg10)*percent, at)
	}
	if subject.Kind == sample.Container {
		return
	}
	t.emitRate(subject, r.someStall, &p.some[i], s.Some.TotalUS, 1, at)
	if s.HasFull {
		t.emitRate(subject, r.fullStall, &p.full[i], s.Full.TotalUS, 1, at)
	}
}

func (c *pressures) forget(e *entry) { c.of.forget(e) }

func (c *pressures) close() {
	for _, f := range c.files {
		if f != nil {
			f.Close()
		}
	}
}
