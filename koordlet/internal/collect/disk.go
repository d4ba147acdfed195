// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"strconv"

	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/sys"
	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// disks tells bytes and requests per second of each whole disk, of all of them together as the node's, and of pods and host
// applications, and how long a request of a disk took:
//
//	latency = Δ(time of reads) / Δreads, in microseconds; nothing where nothing was read
//
// Stacked devices and partitions are not counted, their requests end at a disk.
type disks struct {
	sys   sys.FS
	stats *root.File[proc.DiskStats]
	now   proc.DiskStats
	whole []*disk
	node  diskRates
	of    each[ioState]
	io    usage.IO
	// own: a cgroup is charged for what its own tasks submit, and for nothing that is written for it later (v1).
	own bool
}

// disk is one whole disk.
type disk struct {
	sys.WholeDisk
	subject sample.Subject
	rates   diskRates
}

// ioRates are a subject's counters, diskRates those of a disk.
type ioRates struct{ readBytes, writeBytes, reads, writes sample.Rate }

// ioState is a cgroup's rates and what it had done at the last reading.
type ioState struct {
	ioRates
	all   sample.Rate // requests of both kinds
	done  usage.Device
	known bool
}

type diskRates struct {
	ioRates
	readCount, writeCount, readMS, writeMS sample.Rate
}

// listEvery is after how many slow intervals disks and network interfaces are listed anew.
const listEvery = 6

func newDisks(m *machine) (collector, support) {
	stats, err := m.proc.DiskStatsFile()
	if err != nil {
		return nil, unless(err)
	}
	c := &disks{sys: m.sys, stats: stats, own: m.opts.Cgroup == node.CgroupV1}
	if c.own {
		return c, support{less: "cgroup v1 charges buffered writes to the root, not to the cgroup that wrote"}
	}
	return c, support{}
}

func (c *disks) collect(t *tick) {
	if t.n%(t.slow*listEvery) == 1 {
		c.list(t)
	}
	if err := c.stats.Read(t.buf, &c.now); err != nil {
		t.fail(err)
	} else {
		c.machine(t, t.clock())
	}
	for _, p := range t.pods {
		c.cgroup(t, &p.entry)
	}
	for _, a := range t.apps {
		c.cgroup(t, a)
	}
}

func (c *disks) cgroup(t *tick, e *entry) {
	if !e.fresh || !t.due(e) {
		return
	}
	e.requests = figure{}
	s := c.of.of(e)
	if !c.own || !e.rested || !s.known {
		if !t.table(e.cg.IO(t.buf, &c.io)) {
			return
		}
		s.done, s.known = c.sum(), true
	}
	at := t.clock()
	s.emit(t, e.subject, &s.done, at)
	if d, ok := s.all.Next(s.done.Reads+s.done.Writes, at); ok {
		e.requests = figure{d.PerSecond(), true}
	}
}

// list finds the disks; one that stayed keeps its counters. Sums over other disks than before begin anew: what a disk has counted by the time it is
// listed is no growth.
func (c *disks) list(t *tick) {
	found, err := c.sys.WholeDisks()
	if t.report.Disks = outcome(err); err != nil {
		t.fail(err)
		return
	}
	all := make([]*disk, 0, len(found))
	changed := len(found) != len(c.whole)
	for _, w := range found {
		d := c.disk(w.Major, w.Minor)
		if d == nil {
			changed = true
			d = &disk{subject: sample.OfDisk(strconv.Itoa(int(w.Major)) + ":" + strconv.Itoa(int(w.Minor)))}
		}
		d.WholeDisk = w
		all = append(all, d)
	}
	c.whole = all
	if changed {
		c.node = diskRates{}
		for _, s := range c.of.m { // the order changes nothing
			*s = ioState{}
		}
	}
}

func (c *disks) disk(major, minor uint32) *disk {
	for _, d := range c.whole {
		if d.Major == major && d.Minor == minor {
			return d
		}
	}
	return nil
}

// machine emits the disks, at slow ticks, and the node.
func (c *disks) machine(t *tick, at unit.Micros) {
	var sum proc.Disk
	for i := range c.now.Disks {
		row := &c.now.Disks[i]
		d := c.disk(row.Major, row.Minor)
		if d == nil {
			continue
		}
		sum.Reads += row.Reads
		sum.ReadBytes += row.ReadBytes
		sum.ReadMS += row.ReadMS
		sum.Writes += row.Writes
		sum.WriteBytes += row.WriteBytes
		sum.WriteMS += row.WriteMS
		if t.n%t.slow == 0 {
			d.rates.emit(t, d.subject, row, at)
		}
	}
	c.node.emit(t, sample.OfNode(), &sum, at)
}

// sum is a cgroup's IO on whole disks.
func (c *disks) sum() (out usage.Device) {
	for i := range c.io.Devices {
		d := &c.io.Devices[i]
		if c.disk(d.Major, d.Minor) == nil {
			continue
		}
		out.ReadBytes += d.ReadBytes
		out.WriteBytes += d.WriteBytes
		out.Reads += d.Reads
		out.Writes += d.Writes
	}
	return out
}

func (r *ioRates) emit(t *tick, s sample.Subject, d *usage.Device, at unit.Micros) {
	t.emitRate(s, sample.DiskReadBytes, &r.readBytes, d.ReadBytes, 1, at)
	t.emitRate(s, sample.DiskWriteBytes, &r.writeBytes, d.WriteBytes, 1, at)
	t.emitRate(s, sample.DiskReadIOPS, &r.reads, d.Reads, 1, at)
	t.emitRate(s, sample.DiskWriteIOPS, &r.writes, d.Writes, 1, at)
}

func (r *diskRates) emit(t *tick, s sample.Subject, d *proc.Disk, at unit.Micros) {
	r.ioRates.emit(t, s, &usage.Device{ReadBytes: d.ReadBytes, WriteBytes: d.WriteBytes, Reads: d.Reads, Writes: d.Writes}, at)
	emitLatency(t, s, sample.DiskReadLatency, &r.readMS, &r.readCount, d.ReadMS, d.Reads, at)
	emitLatency(t, s, sample.DiskWriteLatency, &r.writeMS, &r.writeCount, d.WriteMS, d.Writes, at)
}

func emitLatency(t *tick, s sample.Subject, m sample.Metric, ms, count *sample.Rate, msNow, countNow uint64, at unit.Micros) {
	spent, ok1 := ms.Next(msNow, at)
	done, ok2 := count.Next(countNow, at)
	if ok1 && ok2 && done.Count > 0 {
		t.emit(s, m, float64(spent.Count)*1000/float64(done.Count), at)
	}
}

func (c *disks) forget(e *entry) { c.of.forget(e) }

func (c *disks) close() { c.stats.Close() }
