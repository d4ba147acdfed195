// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package perf counts the CPU cycles and instructions of a cgroup with the hardware's counters, for CPI = cycles / instructions.
//
// Input is a cgroup and a set of CPUs, output a pair of counts. Two descriptors per CPU are open while a Counter is, and each
// switch between cgroups costs the machine something as long, so callers count for short windows. It imports kernel/root,
// kernel/proc (for the type of its errors), model/node, golang.org/x/sys and the standard library only. Kernel documents:
// perf_event_open(2), tools/perf/design.txt.
package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
)

// FS knows where a cgroup is for perf, and what is counted.
type FS struct {
	base string
	// events: the first is cycles, the second instructions.
	events [2]event
}

type event struct {
	kind   uint32
	config uint64
}

// hardware are the events of the CPU itself.
var hardware = [2]event{
	{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES},
	{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS},
}

// Open finds the perf_event hierarchy and asks the kernel whether it counts at all. What is missing is a
// *proc.UnsupportedError, which is errors.ErrUnsupported, with the reason.
func Open(r root.Roots, v node.CgroupVersion) (*FS, error) {
	fs := &FS{base: r.Cgroup, events: hardware}
	if v == node.CgroupV1 {
		fs.base = r.Cgroup + "/perf_event"
		if _, err := os.Stat(fs.base); err != nil {
			return nil, &proc.UnsupportedError{Feature: "CPI", Why: "the perf_event controller is not mounted at " + fs.base}
		}
	}
	if err := fs.probe(); err != nil {
		return nil, err
	}
	return fs, nil
}

// probe opens the events once, for our own process, and closes them.
func (fs *FS) probe() error {
	fds, err := fs.pair(0, -1, 0)
	if err != nil {
		return explain(err)
	}
	closeAll(fds[:])
	return nil
}

// explain names what each errno of perf_event_open means.
func explain(err error) error {
	no := func(why string) error {
		return fmt.Errorf("%w (%w)", &proc.UnsupportedError{Feature: "CPI", Why: why}, err)
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODEV):
		return no("the CPU gives no hardware counters: a virtual machine without a PMU")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return no("needs CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8), as kernel.perf_event_paranoid demands")
	case errors.Is(err, unix.ENOSYS):
		return no("the kernel has no CONFIG_PERF_EVENTS, or a seccomp filter forbids perf_event_open")
	}
	return fmt.Errorf("open perf events: %w", err)
}

// Counter counts one cgroup. Not for concurrent use.
type Counter struct {
	// leaders and followers, a pair for each CPU, in this order.
	fds []int
}

// Count starts counting the cgroup at path, with everything below it, on the CPUs. A cgroup that is gone is unix.ENOENT.
func (fs *FS) Count(path string, cpus []int) (*Counter, error) {
	dir, err := root.Join(fs.base, path)
	if err != nil {
		return nil, fmt.Errorf("count cycles: %w", err)
	}
	cgroup, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &root.FileError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(cgroup) //nolint:errcheck // the events keep the cgroup
	c := &Counter{fds: make([]int, 0, 2*len(cpus))}
	for _, cpu := range cpus {
		pair, err := fs.pair(cgroup, cpu, unix.PERF_FLAG_PID_CGROUP)
		if errors.Is(err, unix.ENODEV) {
			continue // the CPU went offline
		}
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("count cycles of %s on CPU %d: %w", path, cpu, explain(err))
		}
		c.fds = append(c.fds, pair[:]...)
	}
	for i := 0; i < len(c.fds); i += 2 {
		if err := unix.IoctlSetInt(c.fds[i], unix.PERF_EVENT_IOC_ENABLE, unix.PERF_IOC_FLAG_GROUP); err != nil {
			c.Close()
			return nil, fmt.Errorf("count cycles of %s: enable: %w", path, err)
		}
	}
	return c, nil
}

// pair opens both events as a group, so that they are always counted together, and off. With pid 0 that is for the calling
// thread, which therefore has to be the same for both: the kernel refuses a group of two threads (EINVAL).
func (fs *FS) pair(pid, cpu, flags int) (fds [2]int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	leader := -1
	for i, e := range fs.events {
		attr := unix.PerfEventAttr{
			Type: e.kind, Config: e.config, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
			Read_format: unix.PERF_FORMAT_GROUP | unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
		}
		if i == 0 {
			attr.Bits = unix.PerfBitDisabled
		}
		fds[i], err = unix.PerfEventOpen(&attr, pid, cpu, leader, flags|unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			closeAll(fds[:i])
			return fds, err
		}
		leader = fds[0]
	}
	return fds, nil
}

// Read is what was counted since Count, over all CPUs. ErrNotCounted says that others held the counters all the time.
func (c *Counter) Read() (Counts, error) {
	var sum Counts
	var buf [groupSize]byte
	for i := 0; i < len(c.fds); i += 2 {
		n, err := unix.Read(c.fds[i], buf[:])
		if err != nil {
			return Counts{}, fmt.Errorf("read perf counter: %w", err)
		}
		g, err := parseGroup(buf[:n])
		if err != nil {
			return Counts{}, err
		}
		sum.add(g)
	}
	if sum.EnabledNS > 0 && sum.RunningNS == 0 {
		return Counts{}, ErrNotCounted
	}
	return sum, nil
}

// Close stops counting.
func (c *Counter) Close() {
	closeAll(c.fds)
	c.fds = nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd) //nolint:errcheck // nothing was written
	}
}

// Counts are sums over CPUs.
type Counts struct {
	// Cycles and Instructions are scaled to the whole time where the hardware's counters were shared.
	Cycles, Instructions float64
	// EnabledNS is how long the cgroup ran on CPUs, RunningNS how long of it was counted.
	EnabledNS, RunningNS uint64
}

// ErrNotCounted: the cgroup ran and never had a hardware counter.
var ErrNotCounted = errors.New("all hardware counters were taken by others")

// CPI is cycles per instruction; ok is false when the cgroup did not run.
func (c Counts) CPI() (cpi float64, ok bool) {
	if c.Instructions <= 0 {
		return 0, false
	}
	return c.Cycles / c.Instructions, true
}

// group is what a read of a group's leader gives.
type group struct{ enabled, running, cycles, instructions uint64 }

// groupSize is that of struct read_format with two members.
const groupSize = 5 * 8

var errGroup = errors.New("perf counter gives no group of two events")

// parseGroup reads struct read_format of perf_event_open(2) for PERF_FORMAT_GROUP with both times: the number of events, time
// enabled, time running, in nanoseconds, and a value for each event, 64 bits each in the machine's order.
func parseGroup(b []byte) (group, error) {
	if len(b) != groupSize || binary.NativeEndian.Uint64(b) != 2 {
		return group{}, errGroup
	}
	return group{
		enabled: binary.NativeEndian.Uint64(b[8:]), running: binary.NativeEndian.Uint64(b[16:]),
		cycles: binary.NativeEndian.Uint64(b[24:]), instructions: binary.NativeEndian.Uint64(b[32:]),
	}, nil
}

// add scales one CPU's counts: value · enabled / running. A CPU on which the cgroup did not run, or was never counted, adds none.
func (c *Counts) add(g group) {
	c.EnabledNS += g.enabled
	c.RunningNS += g.running
	if g.running == 0 {
		return
	}
	scale := 1.0
	if g.running < g.enabled {
		scale = float64(g.enabled) / float64(g.running)
	}
	c.Cycles += float64(g.cycles) * scale
	c.Instructions += float64(g.instructions) * scale
}
