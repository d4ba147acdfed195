// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/taskstats"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// runDelays tells how long tasks waited for a CPU while they could have run, summed over tasks: of the machine from /proc/schedstat
// where the kernel keeps it, of containers by asking for each of their processes, slowly, and of pods as the sum of their containers.
//
//	delay = Σ over processes of (run delay now − at the last reading) / Δt
//
// A process that began since counts from its beginning; one that ended since takes its last interval with it. The same answer says
// what tasks waited for beside the CPU, where delay accounting is on: alloclatency and disklatency tell it.
type runDelays struct {
	machine *root.File[proc.CPUSchedStat] // nil without CONFIG_SCHEDSTATS
	node    sample.Rate
	ask     func(b *root.Buffer, pid int) (taskstats.Delays, error)
	stop    func()
	of      each[delays]
	now     proc.CPUSchedStat
}

// delays is one container's processes at its last reading.
type delays struct {
	at    unit.Micros
	pids  []int
	was   []process // sorted by pid
	spare []process
}

type process struct {
	pid int
	taskstats.Delays
}

// waits are what the tasks of a container or a pod waited for in an interval, per second of it: for memory and for disks in
// microseconds, and how often for disks. cpu is known with the others.
type waits struct {
	cpu, memory, disk, diskWaits float64
	known                        bool
}

func (w *waits) add(o waits) {
	w.cpu += o.cpu
	w.memory += o.memory
	w.disk += o.disk
	w.diskWaits += o.diskWaits
}

// maxProcesses bounds what is asked of one container.
const maxProcesses = 128

func newRunDelay(m *machine) (collector, support) {
	c := &runDelays{stop: func() {}}
	if f, err := m.proc.SchedStatFile(); err == nil {
		c.machine = f
	}
	client, err := taskstats.Dial()
	if err == nil {
		c.ask = func(_ *root.Buffer, pid int) (taskstats.Delays, error) { return client.Delays(pid) }
		c.stop = client.Close
		m.waits = client.Accounts(m.proc)
		return c, c.without("")
	}
	m.waits = err
	c.ask = func(b *root.Buffer, pid int) (taskstats.Delays, error) {
		var s proc.SchedStat
		err := m.proc.ThreadSchedStat(b, pid, &s)
		return taskstats.Delays{CPU: s.WaitNS}, err
	}
	b := root.Get()
	defer b.Put()
	if _, noThreads := c.ask(b, 1); noThreads != nil {
		return nil, support{no: fmt.Sprintf("%v; %v", err, noThreads)}
	}
	return c, c.without(fmt.Sprintf("only the first thread of each process is seen: %v", err))
}

// without says what is missing.
func (c *runDelays) without(less string) support {
	if c.machine == nil {
		if less != "" {
			less += "; "
		}
		less += "nothing of the whole node: the kernel has no CONFIG_SCHEDSTATS"
	}
	return support{less: less}
}

func (c *runDelays) collect(t *tick) {
	if c.machine != nil {
		if err := c.machine.Read(t.buf, &c.now); err != nil {
			t.fail(err)
		} else {
			t.emitRate(sample.OfNode(), sample.RunQueueDelay, &c.node, c.now.WaitNS, 1e-3, t.clock())
		}
	}
	for _, p := range t.pods {
		if p.fresh && t.due(&p.entry) {
			c.pod(t, p)
		}
	}
}

func (c *runDelays) pod(t *tick, p *podEntry) {
	p.waited = waits{}
	var sum waits
	known := 0
	for _, e := range p.containers {
		if !e.fresh {
			continue
		}
		if w := c.container(t, e); w.known {
			sum.add(w)
			known++
			t.emit(e.subject, sample.RunQueueDelay, w.cpu, e.at)
		}
	}
	if known > 0 && known == len(p.containers) {
		sum.known = true
		p.waited = sum
		t.emit(p.subject, sample.RunQueueDelay, sum.cpu, p.at)
	}
}

// container is what the container's tasks waited for since its last reading. The kernel counts a wait when it ends: who has not run has
// no more of it.
func (c *runDelays) container(t *tick, e *entry) waits {
	d := c.of.of(e)
	if e.rested && d.at != 0 {
		d.at = e.at
		return waits{known: true}
	}
	if !t.table(e.cg.Procs(t.buf, maxProcesses, &d.pids)) {
		return waits{}
	}
	at := t.clock()
	now := d.spare[:0]
	var grown taskstats.Delays
	for _, pid := range d.pids {
		p, err := c.ask(t.buf, pid)
		if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.fail(err)
			return waits{}
		}
		now = append(now, process{pid, p})
		g := d.growth(pid, &p)
		grown.CPU += g.CPU
		grown.Memory += g.Memory
		grown.Disk += g.Disk
		grown.DiskWaits += g.DiskWaits
	}
	d.spare, d.was = d.was, now
	over := (at - d.at).Seconds()
	first := d.at == 0
	d.at = at
	if first || over <= 0 {
		return waits{}
	}
	micros := func(ns uint64) float64 { return float64(ns) / 1000 / over }
	return waits{
		cpu: micros(grown.CPU), memory: micros(grown.Memory), disk: micros(grown.Disk), diskWaits: float64(grown.DiskWaits) / over, known: true,
	}
}

// growth is what a process waited since the last reading: all of it where it is new, or another one under this number.
func (d *delays) growth(pid int, now *taskstats.Delays) taskstats.Delays {
	i, found := slices.BinarySearchFunc(d.was, pid, func(p process, pid int) int { return p.pid - pid })
	if !found {
		return *now
	}
	was := &d.was[i].Delays
	if was.CPU > now.CPU || was.Memory > now.Memory || was.Disk > now.Disk || was.DiskWaits > now.DiskWaits {
		return *now
	}
	return taskstats.Delays{
		CPU: now.CPU - was.CPU, Memory: now.Memory - was.Memory, Disk: now.Disk - was.Disk, DiskWaits: now.DiskWaits - was.DiskWaits,
	}
}

func (c *runDelays) forget(e *entry) { c.of.forget(e) }

func (c *runDelays) close() {
	c.stop()
	if c.machine != nil {
		c.machine.Close()
	}
}
