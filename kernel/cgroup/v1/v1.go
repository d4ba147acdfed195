// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package v1 is the rendering of knobs on cgroup v1 and hybrid: a directory tree per controller.
//
// Input is a setting, output a file's name and the text to write, or the value that a file's text means. Open looks once
// at which controllers are mounted, by Mount; nothing else does IO. It imports model/*, kernel/cgroup/format and the standard
// library only.
package v1

import (
	"fmt"
	"os"
	"strconv"

	"github.com/koord-rt/koord-rt/kernel/cgroup/format"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Hierarchy holds the mount of each controller that we use; "" when it is not mounted.
type Hierarchy struct{ cpu, cpuset, memory, blkio string }

// Open finds the controllers below the cgroup root. The cpu controller often shares a mount with cpuacct, with or
// without the usual symbolic link.
func Open(root string) (Hierarchy, error) {
	h := Hierarchy{
		cpu: Mount(root, "cpu", "cpu,cpuacct", "cpuacct,cpu"), cpuset: Mount(root, "cpuset"), memory: Mount(root, "memory"), blkio: Mount(root, "blkio"),
	}
	if h.cpu == "" && h.memory == "" {
		return h, fmt.Errorf("open cgroup v1 %s: neither the cpu nor the memory controller is mounted there", root)
	}
	return h, nil
}

// Mount is the first directory of these names below the cgroup root; "" when there is none.
func Mount(root string, names ...string) string {
	for _, n := range names {
		if st, err := os.Stat(root + "/" + n); err == nil && st.IsDir() {
			return root + "/" + n
		}
	}
	return ""
}

// entry is where a knob lives.
type entry struct{ controller, file string }

// entries is a table, never written. Files of Anolis and Alinux kernels: koordinator-node.md §3.1.
var entries = [plan.NumKnobs]entry{
	plan.CPUShares:            {"cpu", "cpu.shares"},
	plan.CPUQuota:             {"cpu", "cpu.cfs_quota_us"},
	plan.CPUPeriod:            {"cpu", "cpu.cfs_period_us"},
	plan.CPUBurst:             {"cpu", "cpu.cfs_burst_us"},
	plan.CPUIdle:              {"cpu", "cpu.idle"},
	plan.CPUBvt:               {"cpu", "cpu.bvt_warp_ns"},
	plan.CPUSetCPUs:           {"cpuset", "cpuset.cpus"},
	plan.CPUSetMems:           {"cpuset", "cpuset.mems"},
	plan.MemoryLimit:          {"memory", "memory.limit_in_bytes"},
	plan.MemoryMin:            {"memory", "memory.min"},
	plan.MemoryLow:            {"memory", "memory.low"},
	plan.MemoryHigh:           {"memory", "memory.high"},
	plan.MemoryOOMGroup:       {"memory", "memory.oom.group"},
	plan.MemoryWmarkRatio:     {"memory", "memory.wmark_ratio"},
	plan.MemoryWmarkScale:     {"memory", "memory.wmark_scale_factor"},
	plan.MemoryWmarkMinAdj:    {"memory", "memory.wmark_min_adj"},
	plan.MemoryPriority:       {"memory", "memory.priority"},
	plan.MemoryUsePriorityOOM: {"memory", "memory.use_priority_oom"},
	plan.IOReadBPS:            {"blkio", "blkio.throttle.read_bps_device"},
	plan.IOWriteBPS:           {"blkio", "blkio.throttle.write_bps_device"},
	plan.IOReadIOPS:           {"blkio", "blkio.throttle.read_iops_device"},
	plan.IOWriteIOPS:          {"blkio", "blkio.throttle.write_iops_device"},
	plan.IOWeight:             {"blkio", "blkio.cost.weight"},
	plan.IOCostQoS:            {"blkio", "blkio.cost.qos"},
	plan.IOCostModel:          {"blkio", "blkio.cost.model"},
}

// Controller is the name of the knob's controller; "" when v1 has no file for it.
func Controller(k plan.Knob) string {
	if k >= plan.NumKnobs {
		return ""
	}
	return entries[k].controller
}

// File is the knob's file in the cgroup's directory; "" when v1 has none.
func (Hierarchy) File(k plan.Knob) string {
	if k >= plan.NumKnobs {
		return ""
	}
	return entries[k].file
}

// Base is the directory below which the knob's cgroups lie; "" when its controller is not mounted.
func (h Hierarchy) Base(k plan.Knob) string {
	switch Controller(k) {
	case "cpu":
		return h.cpu
	case "cpuset":
		return h.cpuset
	case "memory":
		return h.memory
	case "blkio":
		return h.blkio
	default:
		return ""
	}
}

// ProcsBase is the directory below which cgroup.procs is read: every controller has all processes of a container.
func (h Hierarchy) ProcsBase() string {
	if h.cpu != "" {
		return h.cpu
	}
	return h.memory
}

// UsageFile is the memory in use.
func (Hierarchy) UsageFile() string { return "memory.usage_in_bytes" }

// Companion names a file that must move together with the knob's own: memory and swap together may not be limited
// below memory alone.
func (Hierarchy) Companion(k plan.Knob) string {
	if k == plan.MemoryLimit {
		return "memory.memsw.limit_in_bytes"
	}
	return ""
}

// Nested reports whether a child's value may not exceed its parent's (sched: tg_cfs_schedulable_down, cpuset:
// validate_change_legacy).
func (Hierarchy) Nested(k plan.Knob) bool {
	return k == plan.CPUQuota || k == plan.CPUSetCPUs || k == plan.CPUSetMems
}

// Render is the text to write.
func (Hierarchy) Render(s plan.Setting, _ unit.WeightFormula, _ []byte) (string, error) {
	n := s.Value.Int()
	number := strconv.FormatInt(n, 10)
	switch s.Knob {
	case plan.CPUSetCPUs, plan.CPUSetMems:
		if s.Value.String() == "" {
			return "\n", nil
		}
		return s.Value.String(), nil
	case plan.IOReadBPS, plan.IOWriteBPS, plan.IOReadIOPS, plan.IOWriteIOPS:
		if !plan.IsDevice(s.Key) {
			return "", fmt.Errorf("%s: %q is not major:minor", s.Knob, s.Key)
		}
		if n == unit.Unlimited {
			number = "0" // removes the device's line
		}
		return s.Key + " " + number, nil
	case plan.MemoryLimit, plan.CPUQuota:
		return number, nil // -1 is the word for "no limit"
	case plan.IOCostQoS, plan.IOCostModel:
		return format.CostLine(s)
	}
	if entries[s.Knob].file == "" {
		return "", fmt.Errorf("%s has no cgroup v1 file", s.Knob)
	}
	_, text, ok := plan.Unified(s)
	if !ok && s.Knob != plan.CPUShares && s.Knob != plan.CPUPeriod {
		return "", fmt.Errorf("%s[%s] = %s has no cgroup v1 form", s.Knob, s.Key, s.Value)
	}
	if ok {
		return text, nil
	}
	return number, nil
}

// Parse is the value that a file's content means, in the knob's unit. The files are those of Documentation/admin-guide/cgroup-v1 and of
// Documentation/scheduler/sched-bwc.rst.
func (Hierarchy) Parse(k plan.Knob, key string, raw []byte, _ unit.WeightFormula) (plan.Value, error) {
	switch k {
	case plan.CPUSetCPUs, plan.CPUSetMems:
		return plan.Text(string(raw)), nil
	case plan.IOReadBPS, plan.IOWriteBPS, plan.IOReadIOPS, plan.IOWriteIOPS:
		return format.Value(format.Throttle(raw, key))
	case plan.IOWeight:
		return format.Value(format.Weights(raw, key))
	case plan.IOCostQoS, plan.IOCostModel:
		return format.Cost(raw, k, key), nil
	default:
		return format.Value(format.Int(raw))
	}
}
