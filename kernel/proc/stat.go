// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"slices"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/scan"
)

// UserHZ is the unit of the times in /proc/stat on every architecture that we build for: ticks per second.
const UserHZ = 100

// CPUTimes are the ticks that a CPU, or all of them together, spent since boot. Guest time is already in User and Nice.
type CPUTimes struct {
	User, Nice, System, Idle, IOWait, IRQ, SoftIRQ, Steal uint64
}

// Busy = user + nice + system + irq + softirq, as Koordinator defines a node's CPU usage. Steal is another machine's use.
func (t CPUTimes) Busy() uint64 { return t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ }

// Stat is /proc/stat.
type Stat struct {
	// Total is the sum over CPUs.
	Total CPUTimes
	// CPU is indexed by the CPU's number; one that is offline has zeros.
	CPU []CPUTimes
}

// maxCPUs is NR_CPUS of the largest configurations.
const maxCPUs = 8192

// StatFile keeps /proc/stat open. Not for concurrent use.
func (fs FS) StatFile() (*root.File[Stat], error) { return root.NewFile(string(fs), "stat", parseStat) }

// parseStat reads /proc/stat, ticks of 1/100 s:
//
//	cpu  81473 213 34563 75184 652 0 304 2844 0 0
//	cpu0 40917 213 16987 37988 193 0 20 1338 0 0
//	…
//
// The columns are user, nice, system, idle, iowait, irq, softirq, steal, guest and guest_nice (Documentation/filesystems/proc.rst,
// 1.7). s.CPU is reused.
func parseStat(b []byte, s *Stat) error {
	s.CPU = s.CPU[:0]
	seen := false
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		key, rest := scan.Field(line)
		ok := true
		switch {
		case string(key) == "cpu":
			s.Total, ok = cpuTimes(rest)
			seen = true
		case len(key) > 3 && string(key[:3]) == "cpu":
			ok = s.cpu(key[3:], rest)
		}
		if !ok {
			return scan.ErrFormat
		}
	}
	if !seen {
		return scan.ErrFormat
	}
	return nil
}

func (s *Stat) cpu(id, rest []byte) bool {
	n, ok := scan.Uint(id)
	if !ok || n >= maxCPUs {
		return false
	}
	if missing := int(n) + 1 - len(s.CPU); missing > 0 { //nolint:gosec // below maxCPUs
		old := len(s.CPU)
		s.CPU = slices.Grow(s.CPU, missing)[:n+1]
		clear(s.CPU[old:])
	}
	s.CPU[n], ok = cpuTimes(rest)
	return ok
}

// cpuTimes wants the first seven columns; steal came with 2.6.11.
func cpuTimes(rest []byte) (t CPUTimes, ok bool) {
	for i, field := range [...]*uint64{&t.User, &t.Nice, &t.System, &t.Idle, &t.IOWait, &t.IRQ, &t.SoftIRQ, &t.Steal} {
		var f []byte
		if f, rest = scan.Field(rest); len(f) == 0 {
			return t, i >= 7
		}
		if *field, ok = scan.Uint(f); !ok {
			return t, false
		}
	}
	return t, true
}
