// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package interference

import (
	"strconv"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Level is the value of a signal or a use in its own unit.
type Level float64

// Resource is what pods can take from each other.
type Resource uint8

// The resources. Cache stands for last-level cache and memory bandwidth; no one but the CPU time of a pod is cut for it.
const (
	CPU Resource = iota
	Cache
	Memory
	Disk
	Network
	// NumResources is their number.
	NumResources
)

// String names the resource.
func (r Resource) String() string {
	return [...]string{"cpu", "cache", "memory", "disk", "network", "unknown"}[min(r, NumResources)]
}

// Signal is one thing measured of a pod that tells whether it is disturbed.
type Signal uint8

// The signals with their units.
const (
	// CPI is cycles per instruction.
	CPI Signal = iota
	// CPUDelay is the part of the time in which its runnable tasks waited for a CPU: run delay / (run delay + run time) of
	// /proc/PID/schedstat.
	CPUDelay
	// CPUPressure, MemoryPressure and IOPressure are PSI "some", 0 … 1.
	CPUPressure
	MemoryPressure
	IOPressure
	// Throttled is the part of its periods in which its own quota stopped it.
	Throttled
	// AllocationLatency is the time per second that its tasks spent in direct reclaim, compaction and thrashing, summed up: 1 is
	// one of them all the time.
	AllocationLatency
	// DiskLatency and NetworkLatency are µs per wait for a disk and per round trip.
	DiskLatency
	NetworkLatency
	// NumSignals is their number.
	NumSignals
)

// facts is what is known of a signal: its resource, by how much of the mean it must rise and the least that counts.
type facts struct {
	name     string
	resource Resource
	margin   float64
	least    float64
	// own: the pod does it to itself, nobody else is looked for.
	own bool
	// micros: the unit is µs, else a ratio.
	micros bool
}

var signals = [NumSignals]facts{
	CPI:               {name: "cycles per instruction", resource: Cache, margin: 0.2, least: 0.5},
	CPUDelay:          {name: "CPU scheduling delay", resource: CPU, margin: 0.5, least: 0.05},
	CPUPressure:       {name: "CPU pressure", resource: CPU, margin: 0.5, least: 0.05},
	MemoryPressure:    {name: "memory pressure", resource: Memory, margin: 0.5, least: 0.02},
	IOPressure:        {name: "IO pressure", resource: Disk, margin: 0.5, least: 0.05},
	Throttled:         {name: "CPU throttling", resource: CPU, margin: 0.5, least: 0.05, own: true},
	AllocationLatency: {name: "memory allocation latency", resource: Memory, margin: 0.5, least: 0.01},
	DiskLatency:       {name: "disk latency", resource: Disk, margin: 0.5, least: 1000, micros: true},
	NetworkLatency:    {name: "network latency", resource: Network, margin: 0.5, least: 200, micros: true},
}

// String names the signal.
func (s Signal) String() string {
	if s >= NumSignals {
		return "unknown"
	}
	return signals[s].name
}

// text writes a value of the signal.
func (s Signal) text(v Level) string {
	switch {
	case signals[s].micros:
		return figure.Duration(unit.Micros(v))
	case s == CPI:
		return strconv.FormatFloat(float64(v), 'f', 2, 64)
	}
	return figure.Percent(unit.Fraction(v))
}

// text writes an amount of the resource.
func (r Resource) text(v Level) string {
	switch r {
	case CPU, Cache:
		return figure.CPUs(unit.MilliCPU(v * 1000))
	case Memory:
		return figure.Bytes(unit.Bytes(v))
	}
	return figure.Bytes(unit.Bytes(v)) + "/s"
}
