// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plan

import "github.com/koord-rt/koord-rt/model/unit"

// wmarkScaleDefault is memory.wmark_scale_factor of a cgroup that nobody has written to, 0.5 % (Anolis' kernel documentation).
const wmarkScaleDefault = 50

// Neutral is what a knob holds where nobody has set it, or what restricts least; the value of who asked for one goes before it. Weights of
// the CPU, lists of CPUs and what belongs to a group of its own have none: theirs depends on the parent or on who asks.
func Neutral(k Knob) (Value, bool) {
	switch k {
	case CPUQuota, MemoryLimit, MemoryHigh, IOReadBPS, IOWriteBPS, IOReadIOPS, IOWriteIOPS:
		return Int(unit.Unlimited), true
	case CPUPeriod:
		return Int(unit.CFSPeriod), true
	case CPUBurst, CPUIdle, CPUBvt, SchedPolicy, MemoryMin, MemoryLow, MemoryWmarkMinAdj, MemoryWmarkRatio, MemoryPriority, MemoryUsePriorityOOM,
		MemoryOOMGroup, PageCacheEnable, PageCacheSize, PageCacheSync, IOLatency:
		return Int(0), true
	case MemoryWmarkScale:
		return Int(wmarkScaleDefault), true
	case IOWeight:
		return Int(100), true
	}
	return Value{}, false
}
