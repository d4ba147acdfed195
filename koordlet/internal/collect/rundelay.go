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
// A process that began since counts from its beginning; one that ended since takes its last interval with it.
type runDelays struct {
	machine *root.File[proc.CPUSchedStat] // nil without CONFIG_SCHEDSTATS
	node    sample.Rate
	ask     func(b *root.Buffer, pid int) (ns uint64, err error)
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
	ns  uint64
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
		c.ask = func(_ *root.Buffer, pid int) (uint64, error) { return client.RunDelay(pid) }
		c.stop = client.Close
		return c, c.without("")
	}
	c.ask = func(b *root.Buffer, pid int) (uint64, error) {
		var s proc.SchedStat
		err := m.proc.ThreadSchedStat(b, pid, &s)
		return s.WaitNS, err
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
	var sum float64
	known := 0
	for _, e := range p.containers {
		if !e.fresh {
			continue
		}
		if rate, ok := c.container(t, e); ok {
			sum += rate
			known++
			t.emit(e.subject, sample.RunQueueDelay, rate, e.at)
		}
	}
	if known > 0 && known == len(p.containers) {
		t.emit(p.subject, sample.RunQueueDelay, sum, p.at)
	}
}

// container is the container's delay in microseconds per second since its last reading. The kernel counts a wait when it ends: who
// has not run has no more of it.
func (c *runDelays) container(t *tick, e *entry) (rate float64, ok bool) {
	d := c.of.of(e)
	if e.rested && d.at != 0 {
		d.at = e.at
		return 0, true
	}
	if !t.table(e.cg.Procs(t.buf, maxProcesses, &d.pids)) {
		return 0, false
	}
	at := t.clock()
	now := d.spare[:0]
	var grown uint64
	for _, pid := range d.pids {
		ns, err := c.ask(t.buf, pid)
		if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.fail(err)
			return 0, false
		}
		now = append(now, process{pid, ns})
		grown += d.growth(pid, ns)
	}
	d.spare, d.was = d.was, now
	over := at - d.at
	first := d.at == 0
	d.at = at
	if first || over <= 0 {
		return 0, false
	}
	return float64(grown) / 1000 / over.Seconds(), true
}

// growth is what a process waited since the last reading.
func (d *delays) growth(pid int, ns uint64) uint64 {
	i, found := slices.BinarySearchFunc(d.was, pid, func(p process, pid int) int { return p.pid - pid })
	if found && d.was[i].ns <= ns {
		return ns - d.was[i].ns
	}
	return ns // new, or another one under this id
}

func (c *runDelays) forget(e *entry) { c.of.forget(e) }

func (c *runDelays) close() {
	c.stop()
	if c.machine != nil {
		c.machine.Close()
	}
}
