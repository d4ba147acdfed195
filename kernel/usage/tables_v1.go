// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package usage

import (
	"errors"
	"math"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/scan"
	"github.com/koord-rt/koord-rt/model/unit"
)

var tablesV1 = tables{io: ioV1, numa: numaV1, limits: limitsV1, events: eventsV1}

func ioV1(c *Cgroup, b *root.Buffer, out *IO) error {
	if err := table(b, c.fs.io, c.path, "blkio.throttle.io_service_bytes_recursive", parseServiceBytes, out); err != nil {
		return err
	}
	return table(b, c.fs.io, c.path, "blkio.throttle.io_serviced_recursive", parseServiced, out)
}

// parseServiceBytes reads blkio/PATH/blkio.throttle.io_service_bytes_recursive, bytes by device and kind:
//
//	254:0 Read 91312128
//	254:0 Write 451887104
//	254:0 Total 1699848192
//	Total 1699848192
//
// Documentation/admin-guide/cgroup-v1/blkio-controller.rst.
func parseServiceBytes(b []byte, out *IO) error {
	return blkio(b, out, func(d *Device) (read, write *uint64) { return &d.ReadBytes, &d.WriteBytes })
}

// parseServiced reads blkio/PATH/blkio.throttle.io_serviced_recursive, requests in the same form
// (cgroup-v1/blkio-controller.rst).
func parseServiced(b []byte, out *IO) error {
	return blkio(b, out, func(d *Device) (read, write *uint64) { return &d.Reads, &d.Writes })
}

func blkio(b []byte, out *IO, fields func(*Device) (read, write *uint64)) error {
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		id, rest := scan.Field(line)
		kind, rest := scan.Field(rest)
		isRead := string(kind) == "Read"
		if !isRead && string(kind) != "Write" {
			continue
		}
		major, minor, ok1 := deviceID(id)
		n, _, ok2 := scan.UintField(rest)
		if !ok1 || !ok2 {
			return scan.ErrFormat
		}
		d := out.device(major, minor)
		if d == nil {
			return scan.ErrFormat
		}
		read, write := fields(d)
		if isRead {
			*read = n
		} else {
			*write = n
		}
	}
	return nil
}

// deviceID reads "254:0".
func deviceID(b []byte) (major, minor uint64, ok bool) {
	for i, ch := range b {
		if ch == ':' {
			major, ok1 := scan.Uint(b[:i])
			minor, ok2 := scan.Uint(b[i+1:])
			return major, minor, ok1 && ok2 && major <= math.MaxUint32 && minor <= math.MaxUint32
		}
	}
	return 0, 0, false
}

func numaV1(c *Cgroup, b *root.Buffer, out *NUMA) error {
	return table(b, c.fs.memory, c.path, "memory.numa_stat", parseNUMAStatV1, out)
}

// pageSize is that of every kernel we build for. The file counts pages, as getconf PAGESIZE says; arm64 kernels with 64 KiB
// pages have no cgroup v1 memory controller in any distribution we know.
const pageSize = 4096

// parseNUMAStatV1 reads the hierarchical lines of memory/PATH/memory.numa_stat, pages of the group with its descendants:
//
//	total=6456 N0=6456
//	…
//	hierarchical_file=427309 N0=427309 N1=0
//	hierarchical_anon=14189 N0=14189 N1=0
//	hierarchical_unevictable=5431 N0=5431 N1=0
//
// Documentation/admin-guide/cgroup-v1/memory.rst, 5.6.
func parseNUMAStatV1(b []byte, out *NUMA) error {
	seen := false
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		field, rest := scan.Field(line)
		key, _ := scan.Pair(field)
		var err error
		switch string(key) {
		case "hierarchical_anon":
			err = out.add(rest, pageSize, func(m *NodeMemory) *unit.Bytes { return &m.Anon })
		case "hierarchical_file":
			err = out.add(rest, pageSize, func(m *NodeMemory) *unit.Bytes { return &m.File })
		case "hierarchical_unevictable":
			err = out.add(rest, pageSize, func(m *NodeMemory) *unit.Bytes { return &m.Unevictable })
		default:
			continue
		}
		if err != nil {
			return err
		}
		seen = true
	}
	if !seen {
		return scan.ErrFormat
	}
	return nil
}

// A value is at most an eighth of what 64 bits hold and a node's sum of several a quarter, so that the sum of its fields fits.
const (
	maxValue = math.MaxInt64 / 8
	maxSum   = math.MaxInt64 / 4
)

// add takes "N0=14189 N1=0", each times scale, to the field of each node.
func (n *NUMA) add(rest []byte, scale uint64, field func(*NodeMemory) *unit.Bytes) error {
	for {
		var f []byte
		if f, rest = scan.Field(rest); len(f) == 0 {
			return nil
		}
		key, value := scan.Pair(f)
		if len(key) < 2 || key[0] != 'N' {
			continue
		}
		id, ok1 := scan.Uint(key[1:])
		v, ok2 := scan.Uint(value)
		if !ok1 || !ok2 || v > maxValue/scale {
			return scan.ErrFormat
		}
		m := n.node(id)
		if m == nil {
			return scan.ErrFormat
		}
		sum := field(m)
		if *sum += unit.Bytes(v * scale); *sum > maxSum { //nolint:gosec // bounded above
			return scan.ErrFormat
		}
	}
}

func limitsV1(c *Cgroup, b *root.Buffer, out *Limits) error {
	// A v1 cpuset is never empty once it has tasks, and what it says is what is in force.
	return errors.Join(
		optional(table(b, c.fs.cpu, c.path, "cpu.cfs_quota_us", parseQuota, out)),
		optional(table(b, c.fs.cpu, c.path, "cpu.cfs_period_us", parsePeriod, out)),
		optional(table(b, c.fs.cpuset, c.path, "cpuset.cpus", parseCPUList, out)),
		optional(table(b, c.fs.memory, c.path, "memory.limit_in_bytes", parseMemoryLimit, out)),
	)
}

// optional: what is not there is unlimited.
func optional(err error) error {
	if errors.Is(err, ErrNoFile) {
		return nil
	}
	return err
}

// parseQuota reads cpu/PATH/cpu.cfs_quota_us, microseconds, "-1" for none. Until the period is known the result stands in
// CPU (Documentation/scheduler/sched-bwc.rst).
func parseQuota(b []byte, out *Limits) error {
	if string(b) == "-1" {
		out.CPU = unit.Unlimited
		return nil
	}
	n, ok := scan.Uint(b)
	if !ok || n > maxQuota {
		return scan.ErrFormat
	}
	out.CPU = unit.MilliCPU(n)
	return nil
}

// maxQuota is max_cfs_runtime in microseconds, about 203 days (kernel/sched/core.c).
const maxQuota = 1 << 44

// parsePeriod reads cpu/PATH/cpu.cfs_period_us, microseconds (sched-bwc.rst), and turns the quota into thousandths of a CPU.
func parsePeriod(b []byte, out *Limits) error {
	n, ok := scan.Uint(b)
	if !ok || n == 0 || n > maxQuota {
		return scan.ErrFormat
	}
	if out.CPU != unit.Unlimited {
		out.CPU = unit.MilliFromQuota(unit.Micros(out.CPU), unit.Micros(n))
	}
	return nil
}

// unlimitedV1 is what the kernel shows without a limit: PAGE_COUNTER_MAX, 2^63 less a page; anything near is none either.
const unlimitedV1 = math.MaxInt64 - 1<<16

// parseMemoryLimit reads memory/PATH/memory.limit_in_bytes, or memory.max on v2, where it may be "max" (cgroup-v1/memory.rst,
// cgroup-v2.rst).
func parseMemoryLimit(b []byte, out *Limits) error {
	if string(b) == "max" {
		return nil
	}
	n, ok := scan.Uint(b)
	if !ok {
		return scan.ErrFormat
	}
	if n < unlimitedV1 {
		out.Memory = unit.Bytes(n)
	}
	return nil
}

func eventsV1(c *Cgroup, b *root.Buffer, out *Events) error {
	return table(b, c.fs.memory, c.path, "memory.failcnt", parseFailcnt, out)
}

// parseFailcnt reads memory/PATH/memory.failcnt, how often the limit was hit: "0" (cgroup-v1/memory.rst, 5.1).
func parseFailcnt(b []byte, out *Events) error {
	n, ok := scan.Uint(b)
	if !ok {
		return scan.ErrFormat
	}
	out.Max = n
	return nil
}
