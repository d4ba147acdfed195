// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cgroups

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CPUTime is what the processes of a control group and of all below it have used since it was made, on all CPUs
// together, as the kernel counts it. On v1 dir is the group's directory of the controller cpuacct. It is an error
// if the file cannot be read or is not as here:
//
//	v1  cpuacct.usage  1181457638986         ns, https://docs.kernel.org/admin-guide/cgroup-v1/cpuacct.html
//	v2  cpu.stat       usage_usec 81273411   µs, https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
func (t Tree) CPUTime(dir string) (time.Duration, error) {
	file, parse := "cpuacct.usage", parseCPUAcctUsage
	if t.V2() {
		file, parse = "cpu.stat", parseCPUStat
	}
	text, err := Read(dir, file)
	if err != nil {
		return 0, err
	}
	used, err := parse(text)
	if err != nil {
		return 0, fmt.Errorf("read CPU time of %s: %s: %w", dir, file, err)
	}
	return used, nil
}

func parseCPUAcctUsage(text string) (time.Duration, error) {
	ns, err := strconv.ParseInt(text, 10, 64)
	return time.Duration(ns), err
}

// parseCPUStat looks for the key: no document says that it comes first.
func parseCPUStat(text string) (time.Duration, error) {
	for line := range strings.Lines(text) {
		if value, is := strings.CutPrefix(strings.TrimSpace(line), "usage_usec "); is {
			us, err := strconv.ParseInt(value, 10, 64)
			return time.Duration(us) * time.Microsecond, err
		}
	}
	return 0, errors.New("no usage_usec")
}

// IdleTime is for how long these CPUs have had nothing to do since the machine was started, summed up: idle and iowait,
// the fourth and fifth figure of a CPU in /proc/stat, in hundredths of a second.
//
//	cpu0 40917 213 16987 37988 193 0 20 1338 0 0
//
// It is an error if a CPU is not there, as one that is offline is not: its time would count as used.
// https://docs.kernel.org/filesystems/proc.html#miscellaneous-kernel-statistics-in-proc-stat
func IdleTime(cpus []int) (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read idle time: %w", err)
	}
	idle, err := parseIdle(string(text), cpus)
	if err != nil {
		return 0, fmt.Errorf("read idle time: /proc/stat: %w", err)
	}
	return idle, nil
}

func parseIdle(text string, cpus []int) (time.Duration, error) {
	missing := map[string]bool{}
	for _, cpu := range cpus {
		missing[fmt.Sprintf("cpu%d", cpu)] = true
	}
	var idle time.Duration
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 6 || !missing[f[0]] {
			continue
		}
		delete(missing, f[0])
		for _, ticks := range f[4:6] {
			n, err := strconv.ParseInt(ticks, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%q: %w", line, err)
			}
			idle += time.Duration(n) * 10 * time.Millisecond
		}
	}
	if len(missing) > 0 {
		return 0, fmt.Errorf("no figures of %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	return idle, nil
}
