// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// machineReading is what the node collector found, for those that compute from it.
type machineReading struct {
	stat   proc.Stat
	memory proc.Meminfo
	at     unit.Micros
	// statOK and memoryOK: read in this tick.
	statOK, memoryOK bool
	// cores is the CPU used since the tick before; rated says that there was one.
	cores float64
	rated bool
}

// nodes measures the whole machine:
//
//	cpu = Δ(user + nice + system + irq + softirq) / Δt of /proc/stat
//	memory = MemTotal − MemAvailable of /proc/meminfo
type nodes struct {
	stat   *root.File[proc.Stat]
	memory *root.File[proc.Meminfo]
	cpu    sample.Rate
}

func newNode(m *machine) (collector, support) {
	stat, err := m.proc.StatFile()
	if err != nil {
		return nil, unless(err)
	}
	memory, err := m.proc.MeminfoFile()
	if err != nil {
		stat.Close()
		return nil, unless(err)
	}
	return &nodes{stat: stat, memory: memory}, support{}
}

func (c *nodes) collect(t *tick) {
	m := &t.machine
	m.statOK, m.memoryOK, m.rated = false, false, false
	err := c.stat.Read(t.buf, &m.stat)
	if t.report.CPUs = outcome(err); err != nil {
		t.fail(err)
	} else {
		m.at, m.statOK = t.clock(), true
		if d, ok := c.cpu.Next(m.stat.Total.Busy(), m.at); ok {
			m.cores, m.rated = d.PerSecond()/proc.UserHZ, true
			t.emit(sample.OfNode(), sample.CPUUsage, m.cores, m.at)
		}
	}
	if err := c.memory.Read(t.buf, &m.memory); err != nil {
		t.fail(err)
		return
	}
	m.at, m.memoryOK = t.clock(), true
	t.emit(sample.OfNode(), sample.MemoryUsage, float64(m.memory.Used()), m.at)
}

func (c *nodes) close() {
	c.stat.Close()
	c.memory.Close()
}
