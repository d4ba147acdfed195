// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plan

import (
	"strconv"
	"strings"
)

// unifiedKeys are the cgroup v2 files of the knobs that have no OCI field of their own, by knob. Source:
// Documentation/admin-guide/cgroup-v2.rst; the files of Anolis and Alinux kernels by koordinator-node.md §3.1.
var unifiedKeys = [NumKnobs]string{
	CPUBurst:             "cpu.max.burst",
	CPUIdle:              "cpu.idle",
	CPUBvt:               "cpu.bvt_warp_ns",
	MemoryMin:            "memory.min",
	MemoryLow:            "memory.low",
	MemoryHigh:           "memory.high",
	MemoryOOMGroup:       "memory.oom.group",
	MemoryWmarkRatio:     "memory.wmark_ratio",
	MemoryWmarkScale:     "memory.wmark_scale_factor",
	MemoryWmarkMinAdj:    "memory.wmark_min_adj",
	MemoryPriority:       "memory.priority",
	MemoryUsePriorityOOM: "memory.use_priority_oom",
	PageCacheEnable:      "memory.pagecache_limit.enable",
	PageCacheSize:        "memory.pagecache_limit.size",
	PageCacheSync:        "memory.pagecache_limit.sync",
	IOReadBPS:            "io.max",
	IOWriteBPS:           "io.max",
	IOReadIOPS:           "io.max",
	IOWriteIOPS:          "io.max",
	IOWeight:             "io.weight",
	IOLatency:            "io.latency",
}

// ioMaxFields are the words of io.max.
var ioMaxFields = [NumKnobs]string{IOReadBPS: "rbps", IOWriteBPS: "wbps", IOReadIOPS: "riops", IOWriteIOPS: "wiops"}

// IOMaxField is the word of a cgroup v2 io.max line that carries the knob: "rbps", "wbps", "riops" or "wiops"; "" for
// every other knob.
func (k Knob) IOMaxField() string {
	if k >= NumKnobs {
		return ""
	}
	return ioMaxFields[k]
}

// UnifiedKey is the cgroup v2 file of a knob that has no OCI field of its own; "" for those that have one (shares,
// quota, period, cpuset, memory limit, oom_score_adj, rdt) and for those that are no cgroup file.
func (k Knob) UnifiedKey() string {
	if k >= NumKnobs {
		return ""
	}
	return unifiedKeys[k]
}

// Unlimitable reports whether -1 means "no limit" for the knob. For the others whose Info has no upper bound (burst,
// latency target, page cache size) the kernel has no such word.
func (k Knob) Unlimitable() bool {
	switch k {
	case CPUQuota, MemoryLimit, MemoryMin, MemoryLow, MemoryHigh, IOReadBPS, IOWriteBPS, IOReadIOPS, IOWriteIOPS:
		return true
	default:
		return false
	}
}

// Unified renders a setting as an entry of OCI's linux.resources.unified: the file and one line for it. ok is false for
// knobs without a UnifiedKey, and for a keyed knob without its device. It does not ask whether the kernel has the file:
// a key that is missing there fails the container's creation, so the caller checks node.Kernel first.
//
//	memory.high = -1          → memory.high "max"
//	io.read_bps[8:0] = 1048576 → io.max "8:0 rbps=1048576"
//	io.weight = 50            → io.weight "default 50"
func Unified(s Setting) (key, value string, ok bool) {
	key = s.Knob.UnifiedKey()
	if key == "" || s.Value.IsText() {
		return "", "", false
	}
	number := strconv.FormatInt(s.Value.Int(), 10)
	if s.Value.Int() == -1 && s.Knob != CPUBvt && s.Knob != MemoryWmarkMinAdj {
		if !s.Knob.Unlimitable() {
			return "", "", false
		}
		number = "max"
	}
	if !s.Knob.Info().Keyed {
		return key, number, true
	}
	device := s.Key
	switch {
	case device == "" && s.Knob == IOWeight:
		return key, "default " + number, true
	case !IsDevice(device):
		return "", "", false
	case s.Knob == IOWeight:
		return key, device + " " + number, true
	case s.Knob == IOLatency:
		return key, device + " target=" + number, true
	default:
		return key, device + " " + s.Knob.IOMaxField() + "=" + number, true
	}
}

// IsDevice reports whether s is "major:minor" in decimal, as the kernel writes it: with leading zeros one device would have several names, and
// none of them would be found in a file that is read back.
func IsDevice(s string) bool {
	major, minor, ok := strings.Cut(s, ":")
	return ok && isNumber(major) && isNumber(minor)
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil && (s == "0" || s[0] != '0')
}
