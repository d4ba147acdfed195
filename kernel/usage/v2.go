// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package usage

import (
	"bytes"
	"math"

	"github.com/koord-rt/koord-rt/kernel/scan"
	"github.com/koord-rt/koord-rt/model/unit"
)

func layoutV2(root string) layout {
	return layout{
		files: [maxFiles]file{
			{CPUTime | CPUThrottle, root, "cpu.stat", parseCPUStatV2},
			{MemoryCurrent, root, "memory.current", parseMemoryCurrent},
			{MemoryDetail, root, "memory.stat", parseMemoryStatV2},
		},
		cpu: root, cpuset: root, memory: root, io: root,
		pressure: []string{root}, tables: tablesV2,
	}
}

// parseCPUStatV2 reads PATH/cpu.stat, times in microseconds; without the cpu controller the file ends after system_usec (6.11
// adds nice_usec):
//
//	usage_usec 81273411
//	user_usec 60100200
//	system_usec 21173211
//	nr_periods 1200
//	nr_throttled 14
//	throttled_usec 183200
//
// Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files".
func parseCPUStatV2(b []byte, c *Counters) error {
	var usage, periods, throttled, stalled uint64
	var have Part
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		key, rest := scan.Field(line)
		ok := true
		switch string(key) {
		case "usage_usec":
			usage, _, ok = scan.UintField(rest)
			have |= CPUTime
		case "nr_periods":
			periods, _, ok = scan.UintField(rest)
			have |= CPUThrottle
		case "nr_throttled":
			throttled, _, ok = scan.UintField(rest)
		case "throttled_usec":
			stalled, _, ok = scan.UintField(rest)
		}
		if !ok {
			return scan.ErrFormat
		}
	}
	if !have.Has(CPUTime) || usage > math.MaxUint64/1000 || stalled > math.MaxUint64/1000 {
		return scan.ErrFormat
	}
	c.UsageNS = usage * 1000
	c.Periods, c.Throttled, c.ThrottledNS = periods, throttled, stalled*1000
	c.Have |= have
	return nil
}

// parseMemoryCurrent reads PATH/memory.current, or memory.usage_in_bytes on v1: bytes charged to the group and its
// descendants:
//
//	1830559744
//
// Documentation/admin-guide/cgroup-v2.rst, "Memory Interface Files"; cgroup-v1/memory.rst, 5.5.
func parseMemoryCurrent(b []byte, c *Counters) error {
	n, ok := scan.Uint(b)
	if !ok || n > math.MaxInt64 {
		return scan.ErrFormat
	}
	c.Current = unit.Bytes(n)
	c.Have |= MemoryCurrent
	return nil
}

// parseMemoryStatV2 reads PATH/memory.stat, the group with its descendants, in bytes (counts for refaults and faults):
//
//	anon 2334720
//	file 1089536
//	…
//	inactive_anon 2301952
//	workingset_refault_file 12
//	pgmajfault 3
//
// Documentation/admin-guide/cgroup-v2.rst, "Memory Interface Files". workingset_refault was split in 5.9.
func parseMemoryStatV2(b []byte, c *Counters) error { return memoryStat(b, c, "") }

// memoryStat takes the lines whose key begins with prefix.
func memoryStat(b []byte, c *Counters, prefix string) error {
	var m Memory
	missing := 5
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		if len(line) < len(prefix) || string(line[:len(prefix)]) != prefix {
			continue
		}
		line = line[len(prefix):]
		i := bytes.IndexByte(line, ' ')
		if i < 0 {
			continue
		}
		amount, count := m.field(line[:i])
		if amount == nil && count == nil {
			continue
		}
		n, ok := scan.Uint(line[i+1:])
		if !ok || n > math.MaxInt64/8 {
			return scan.ErrFormat // and the sum of five fits
		}
		if amount == nil {
			*count += n
			continue
		}
		*amount = unit.Bytes(n)
		if amount != &m.Cache {
			missing--
		}
	}
	if missing > 0 {
		return scan.ErrFormat
	}
	c.Memory = m
	c.Have |= MemoryDetail
	return nil
}

// field is where a key's value goes: an amount or a counter.
func (m *Memory) field(key []byte) (amount *unit.Bytes, count *uint64) {
	switch string(key) {
	case "file", "cache":
		return &m.Cache, nil
	case "inactive_anon":
		return &m.InactiveAnon, nil
	case "active_anon":
		return &m.ActiveAnon, nil
	case "inactive_file":
		return &m.InactiveFile, nil
	case "active_file":
		return &m.ActiveFile, nil
	case "unevictable":
		return &m.Unevictable, nil
	case "workingset_refault_anon":
		return nil, &m.RefaultAnon
	case "workingset_refault_file", "workingset_refault":
		return nil, &m.RefaultFile
	case "pgmajfault":
		return nil, &m.MajorFaults
	}
	return nil, nil
}
