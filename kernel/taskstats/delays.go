// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package taskstats

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/netlink"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
)

// Delays are the waits of one process, summed up over its threads; times in nanoseconds.
type Delays struct {
	// CPU: it could have run. This one is counted whether delay accounting is on or not.
	CPU uint64
	// Memory: in direct reclaim, in compaction, and for pages of its working set that had been taken from it (thrashing).
	Memory uint64
	// Disk is the waiting for block devices, DiskWaits how often. What it only submits, and nobody waits for, is not in it.
	Disk, DiskWaits uint64
}

// Offsets in struct taskstats (include/uapi/linux/taskstats.h), which grows at its end: freepages since version 7 (Linux 2.6.28),
// thrashing since 9 (4.20), compaction since 11 (5.17).
const (
	cpuOffset        = unsafe.Offsetof(unix.Taskstats{}.Cpu_delay_total)
	diskWaitsOffset  = unsafe.Offsetof(unix.Taskstats{}.Blkio_count)
	diskOffset       = unsafe.Offsetof(unix.Taskstats{}.Blkio_delay_total)
	reclaimOffset    = unsafe.Offsetof(unix.Taskstats{}.Freepages_delay_total)
	thrashingOffset  = unsafe.Offsetof(unix.Taskstats{}.Thrashing_delay_total)
	compactionOffset = unsafe.Offsetof(unix.Taskstats{}.Compact_delay_total)
)

// movedVersion is the one version that grew in its middle: of it only what stands before is read. Version 16 took it back (Linux 6.16,
// "taskstats: fix struct taskstats breaks backward compatibility since version 15").
const movedVersion = 15

// parseDelays takes the numbers out of TASKSTATS_TYPE_AGGR_TGID, a nest of the id and struct taskstats, whose first field is its
// version (Documentation/accounting/taskstats-struct.rst).
func parseDelays(payload []byte) (d Delays, version uint16, err error) {
	stats := netlink.Attribute(netlink.Attribute(payload, unix.TASKSTATS_TYPE_AGGR_TGID), unix.TASKSTATS_TYPE_STATS)
	if uintptr(len(stats)) < cpuOffset+8 {
		return Delays{}, 0, errAnswer
	}
	version = binary.NativeEndian.Uint16(stats)
	d.CPU = number(stats, cpuOffset)
	if version == movedVersion {
		return d, version, nil
	}
	d.Disk, d.DiskWaits = number(stats, diskOffset), number(stats, diskWaitsOffset)
	d.Memory = number(stats, reclaimOffset) + number(stats, thrashingOffset) + number(stats, compactionOffset)
	return d, version, nil
}

// number is a field, 0 where the struct of this kernel ends before it.
func number(stats []byte, at uintptr) uint64 {
	if uintptr(len(stats)) < at+8 {
		return 0
	}
	return binary.NativeEndian.Uint64(stats[at:])
}

// Accounts says why the waits for memory and disk are not counted on this machine, nil when they are: kernel.task_delayacct since Linux
// 5.14. Older kernels count unless they were booted with nodelayacct, and do not tell; there the count of process 1 does, which no
// machine with a disk has started without a wait.
func (c *Client) Accounts(p proc.FS) error {
	const sysctl = "sys/kernel/task_delayacct"
	if c.version == movedVersion {
		return unsupported(fmt.Sprintf("version %d of its answer has its fields elsewhere (Linux 6.14 and 6.15 before the fix)", movedVersion))
	}
	text, err := root.Read(p.Path(sysctl))
	switch {
	case err == nil && text == "1":
		return nil
	case err == nil:
		return unsupported("kernel.task_delayacct is " + text)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("look for delay accounting: %w", err)
	}
	if d, err := c.Delays(1); err == nil && d.DiskWaits > 0 {
		return nil
	}
	return unsupported("the kernel has no kernel.task_delayacct, and has never counted a wait of process 1 for a disk")
}

func unsupported(why string) error {
	return &proc.UnsupportedError{Feature: "delay accounting", Why: why}
}
