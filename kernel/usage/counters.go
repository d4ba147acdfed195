// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package usage

import "github.com/koord-rt/koord-rt/model/unit"

// Part is a set of what a cgroup's accounting tells.
type Part uint8

// Parts. Each is one file on v1; on v2 the first two are one.
const (
	// CPUTime is the consumed CPU time.
	CPUTime Part = 1 << iota
	// CPUThrottle counts periods of the CPU quota; on v2 it is missing where the cpu controller is off.
	CPUThrottle
	// MemoryCurrent is the charged memory.
	MemoryCurrent
	// MemoryDetail is memory.stat.
	MemoryDetail

	// Everything is all that Read can read.
	Everything = CPUTime | CPUThrottle | MemoryCurrent | MemoryDetail
)

// Has reports whether all of q is in p.
func (p Part) Has(q Part) bool { return p&q == q }

// Counters is what was read of a cgroup and everything below it, each part when it was asked for. Only the parts in Have are
// valid.
type Counters struct {
	Have Part
	// UsageNS is the CPU time in nanoseconds since the cgroup was made; on v2 the kernel counts in microseconds.
	UsageNS uint64
	// Periods have passed with a quota in force, in Throttled of them the cgroup ran into it, for ThrottledNS in all
	// (summed over CPUs on v1).
	Periods, Throttled, ThrottledNS uint64
	// Current is the memory charged to the cgroup, page cache and kernel memory included.
	Current unit.Bytes
	Memory  Memory
}

// Memory is memory.stat, in bytes where nothing else is said.
type Memory struct {
	InactiveAnon, ActiveAnon, InactiveFile, ActiveFile, Unevictable unit.Bytes
	// Cache is all page cache, shared memory included: file on v2, cache on v1.
	Cache unit.Bytes
	// RefaultAnon and RefaultFile count pages that were reclaimed and needed again; before Linux 5.9 both are in RefaultFile.
	RefaultAnon, RefaultFile uint64
	// MajorFaults count page faults that had to read from a device.
	MajorFaults uint64
}

// WithoutPageCache = inactive_anon + active_anon + unevictable: what reclaim cannot get back without swapping.
func (m *Memory) WithoutPageCache() unit.Bytes { return m.InactiveAnon + m.ActiveAnon + m.Unevictable }

// WithPageCache = WithoutPageCache + inactive_file + active_file.
func (m *Memory) WithPageCache() unit.Bytes {
	return m.WithoutPageCache() + m.InactiveFile + m.ActiveFile
}
