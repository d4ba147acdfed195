// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package usage

import (
	"github.com/koord-rt/koord-rt/kernel/cgroup/v1"
	"github.com/koord-rt/koord-rt/kernel/scan"
)

// layoutV1 finds the controllers below the cgroup root. Controllers may share a mount, with or without the usual links.
func layoutV1(root string) layout {
	cpuacct := v1.Mount(root, "cpuacct", "cpu,cpuacct", "cpuacct,cpu")
	cpu := v1.Mount(root, "cpu", "cpu,cpuacct", "cpuacct,cpu")
	memory, blkio := v1.Mount(root, "memory"), v1.Mount(root, "blkio")
	l := layout{
		files: [maxFiles]file{
			{CPUTime, cpuacct, "cpuacct.usage", parseCPUAcctUsage},
			{CPUThrottle, cpu, "cpu.stat", parseCPUStatV1},
			{MemoryCurrent, memory, "memory.usage_in_bytes", parseMemoryCurrent},
			{MemoryDetail, memory, "memory.stat", parseMemoryStatV1},
		},
		cpu: cpu, cpuset: v1.Mount(root, "cpuset"), memory: memory, io: blkio,
		tables: tablesV1,
	}
	// On a hybrid node a runtime may keep the container in the unified hierarchy as well; Anolis kernels have pressure files
	// in cpuacct. A file that is not there is looked for in vain each time, and the first is the more common.
	if unified := v1.Mount(root, "unified"); unified != "" {
		l.pressure = append(l.pressure, unified)
	}
	if cpuacct != "" {
		l.pressure = append(l.pressure, cpuacct)
	}
	return l
}

// parseCPUAcctUsage reads cpuacct/PATH/cpuacct.usage, nanoseconds of CPU time of the group and its descendants:
//
//	1181457638986
//
// Documentation/admin-guide/cgroup-v1/cpuacct.rst.
func parseCPUAcctUsage(b []byte, c *Counters) error {
	n, ok := scan.Uint(b)
	if !ok {
		return scan.ErrFormat
	}
	c.UsageNS = n
	c.Have |= CPUTime
	return nil
}

// parseCPUStatV1 reads cpu/PATH/cpu.stat, times in nanoseconds; nr_bursts and burst_time follow since 5.15, wait_sum where
// kernel.sched_schedstats is 1:
//
//	nr_periods 1200
//	nr_throttled 14
//	throttled_time 183200041
//
// Documentation/scheduler/sched-bwc.rst, "Statistics".
func parseCPUStatV1(b []byte, c *Counters) error {
	var periods, throttled, stalled uint64
	missing := 3
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		key, rest := scan.Field(line)
		ok := true
		switch string(key) {
		case "nr_periods":
			periods, _, ok = scan.UintField(rest)
			missing--
		case "nr_throttled":
			throttled, _, ok = scan.UintField(rest)
			missing--
		case "throttled_time":
			stalled, _, ok = scan.UintField(rest)
			missing--
		}
		if !ok {
			return scan.ErrFormat
		}
	}
	if missing > 0 {
		return scan.ErrFormat
	}
	c.Periods, c.Throttled, c.ThrottledNS = periods, throttled, stalled
	c.Have |= CPUThrottle
	return nil
}

// parseMemoryStatV1 reads the total_ lines of memory/PATH/memory.stat, which are the group with its descendants, in bytes
// (pages for refaults, a count for faults):
//
//	cache 11665408
//	…
//	total_inactive_anon 55615488
//	total_active_file 769736704
//
// Documentation/admin-guide/cgroup-v1/memory.rst, 5.2.
func parseMemoryStatV1(b []byte, c *Counters) error {
	return memoryStat(b, c, "total_")
}
