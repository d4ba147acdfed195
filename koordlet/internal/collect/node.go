// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"fmt"

	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// machineReading is what the node collector found, for those that compute from it.
type machineReading struct {
	stat   proc.Stat
	memory proc.Meminfo
	// lists are the free lists of the CPUs as they were read last, empty where that failed.
	lists proc.ZoneInfo
	at    unit.Micros
	// statOK and memoryOK: read in this tick.
	statOK, memoryOK bool
	// cores is the CPU used since the tick before; rated says that there was one.
	cores float64
	rated bool
}

func (m *machineReading) used() unit.Bytes { return m.memory.Used(m.lists.PerCPU) }
func (m *machineReading) usedWithPageCache() unit.Bytes {
	return m.memory.UsedWithPageCache(m.lists.PerCPU)
}

// nodes measures the whole machine:
//
//	cpu = Δ(user + nice + system + irq + softirq) / Δt of /proc/stat
//	memory = MemTotal − MemAvailable of /proc/meminfo − free lists of the CPUs, count of /proc/zoneinfo
//
// The lists are read slowly; in between their last reading counts. Who must know what there is at this moment adds them again
// (MemoryFreeLists) and takes off what it reads itself.
type nodes struct {
	stat   *root.File[proc.Stat]
	memory *root.File[proc.Meminfo]
	lists  *root.File[proc.ZoneInfo] // nil where there are none
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
	lists, err := m.proc.ZoneInfoFile()
	if err != nil {
		return &nodes{stat: stat, memory: memory}, support{less: fmt.Sprintf("free memory on lists of the CPUs counts as used: %v", err)}
	}
	return &nodes{stat: stat, memory: memory, lists: lists}, support{}
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
	c.free(t)
	m.at, m.memoryOK = t.clock(), true
	t.emit(sample.OfNode(), sample.MemoryUsage, float64(m.used()), m.at)
}

// free reads the lists in the first tick and at a slow turn.
func (c *nodes) free(t *tick) {
	if c.lists == nil || t.n != 1 && t.n%t.slow != 0 {
		return
	}
	m := &t.machine
	if err := c.lists.Read(t.buf, &m.lists); err != nil {
		m.lists = proc.ZoneInfo{}
		t.fail(err)
	}
	t.emit(sample.OfNode(), sample.MemoryFreeLists, float64(m.lists.PerCPU), t.clock())
}

func (c *nodes) close() {
	c.stat.Close()
	c.memory.Close()
	if c.lists != nil {
		c.lists.Close()
	}
}
