// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package usage

import (
	"errors"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/scan"
	"github.com/koord-rt/koord-rt/model/unit"
)

var tablesV2 = tables{io: ioV2, numa: numaV2, limits: limitsV2, events: eventsV2}

func ioV2(c *Cgroup, b *root.Buffer, out *IO) error {
	return table(b, c.fs.io, c.path, "io.stat", parseIOStat, out)
}

// parseIOStat reads PATH/io.stat, bytes and requests by device:
//
//	8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0
//
// A device without IO has its number alone; keys of io.cost and io.latency follow the six. Documentation/admin-guide/cgroup-v2.rst,
// "IO Interface Files".
func parseIOStat(b []byte, out *IO) error {
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		id, rest := scan.Field(line)
		if len(id) == 0 {
			continue
		}
		major, minor, ok := deviceID(id)
		if !ok {
			return scan.ErrFormat
		}
		d := out.device(major, minor)
		if d == nil {
			return scan.ErrFormat
		}
		for {
			var f []byte
			if f, rest = scan.Field(rest); len(f) == 0 {
				break
			}
			key, value := scan.Pair(f)
			switch string(key) {
			case "rbytes":
				d.ReadBytes, ok = scan.Uint(value)
			case "wbytes":
				d.WriteBytes, ok = scan.Uint(value)
			case "rios":
				d.Reads, ok = scan.Uint(value)
			case "wios":
				d.Writes, ok = scan.Uint(value)
			}
			if !ok {
				return scan.ErrFormat
			}
		}
	}
	return nil
}

func numaV2(c *Cgroup, b *root.Buffer, out *NUMA) error {
	return table(b, c.fs.memory, c.path, "memory.numa_stat", parseNUMAStatV2, out)
}

// parseNUMAStatV2 reads PATH/memory.numa_stat (Linux 5.10), bytes of the group with its descendants:
//
//	anon N0=2334720 N1=0
//	file N0=1089536 N1=0
//	…
//	inactive_anon N0=2301952 N1=0
//	unevictable N0=0 N1=0
//
// Documentation/admin-guide/cgroup-v2.rst, "Memory Interface Files". The lists, not anon and file, are counted: shared memory is
// file here and anonymous there.
func parseNUMAStatV2(b []byte, out *NUMA) error {
	seen := false
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		key, rest := scan.Field(line)
		var err error
		switch string(key) {
		case "inactive_anon", "active_anon":
			err = out.add(rest, 1, func(m *NodeMemory) *unit.Bytes { return &m.Anon })
		case "inactive_file", "active_file":
			err = out.add(rest, 1, func(m *NodeMemory) *unit.Bytes { return &m.File })
		case "unevictable":
			err = out.add(rest, 1, func(m *NodeMemory) *unit.Bytes { return &m.Unevictable })
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

func limitsV2(c *Cgroup, b *root.Buffer, out *Limits) error {
	return errors.Join(
		optional(table(b, c.fs.cpu, c.path, "cpu.max", parseCPUMax, out)),
		optional(table(b, c.fs.cpuset, c.path, "cpuset.cpus.effective", parseCPUList, out)),
		optional(table(b, c.fs.memory, c.path, "memory.max", parseMemoryLimit, out)),
	)
}

// parseCPUMax reads PATH/cpu.max, quota and period in microseconds: "max 100000" or "50000 100000" (cgroup-v2.rst, "CPU Interface
// Files").
func parseCPUMax(b []byte, out *Limits) error {
	quota, rest := scan.Field(b)
	period, _ := scan.Field(rest)
	if string(quota) == "max" {
		return nil
	}
	next := *out
	if err := parseQuota(quota, &next); err != nil {
		return err
	}
	if err := parsePeriod(period, &next); err != nil {
		return err
	}
	*out = next
	return nil
}

// parseCPUList counts the CPUs of PATH/cpuset.cpus.effective, or cpuset/PATH/cpuset.cpus on v1: "0-3,8" are five
// (Documentation/admin-guide/cgroup-v1/cpusets.rst, "List format").
func parseCPUList(b []byte, out *Limits) error {
	n := 0
	for len(b) > 0 {
		i := 0
		for i < len(b) && b[i] != ',' {
			i++
		}
		low, high, ok := span(b[:i])
		if !ok || high-low >= maxCPUs {
			return scan.ErrFormat
		}
		n += int(high-low) + 1 //nolint:gosec // below maxCPUs
		if b = b[i:]; len(b) > 0 {
			b = b[1:]
		}
	}
	out.CPUs = n
	return nil
}

// maxCPUs is NR_CPUS of the largest configurations.
const maxCPUs = 8192

// span reads "5" or "0-3".
func span(b []byte) (low, high uint64, ok bool) {
	for i, ch := range b {
		if ch == '-' {
			low, ok1 := scan.Uint(b[:i])
			high, ok2 := scan.Uint(b[i+1:])
			return low, high, ok1 && ok2 && low <= high
		}
	}
	low, ok = scan.Uint(b)
	return low, low, ok
}

func eventsV2(c *Cgroup, b *root.Buffer, out *Events) error {
	return table(b, c.fs.memory, c.path, "memory.events", parseMemoryEvents, out)
}

// parseMemoryEvents reads PATH/memory.events, counts of the group with its descendants (cgroup-v2.rst, "Memory Interface
// Files"):
//
//	low 0
//	high 31
//	max 7
//	oom 2
//	oom_kill 2
func parseMemoryEvents(b []byte, out *Events) error {
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		key, rest := scan.Field(line)
		ok := true
		switch string(key) {
		case "high":
			out.High, _, ok = scan.UintField(rest)
		case "max":
			out.Max, _, ok = scan.UintField(rest)
		}
		if !ok {
			return scan.ErrFormat
		}
	}
	return nil
}
