// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cgroup

import (
	"strconv"

	"github.com/koord-rt/koord-rt/kernel/cgroup/v1"
	"github.com/koord-rt/koord-rt/kernel/cgroup/v2"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// File is one line of the knob reference.
type File struct {
	Knob plan.Knob
	// V1Controller and V1 are the v1 hierarchy and file, V2 the v2 file; "" where there is none. Elsewhere is where a
	// knob lives that is no cgroup file.
	V1Controller, V1, V2, Elsewhere string
	Unit, Range                     string
	// SinceV1 and SinceV2 are the first mainline kernel with the file, or the kernel family that alone has it.
	SinceV1, SinceV2 string
	// Failure says what happens where the file is missing or the kernel refuses the value.
	Failure string
}

// origin is what the tables of the versions do not tell.
type origin struct{ v1, v2, elsewhere, failure string }

const (
	anolis  = "Anolis"
	missing = "file missing: feature unsupported, nothing is written"
	notFile = "no kernel file: stands in the container's specification"
)

// origins is a table, never written. Kernels: nri-cri-kernel-facts.md §5.
var origins = [plan.NumKnobs]origin{
	plan.CPUShares:            {"2.6.24", "4.15", "", "EINVAL while cpu.idle is 1"},
	plan.CPUQuota:             {"3.2", "4.15", "", "EINVAL below the burst; on v1 also beyond the parent's quota: cut to it"},
	plan.CPUPeriod:            {"3.2", "4.15", "", "EINVAL outside 1 ms to 1 s"},
	plan.CPUBurst:             {"5.14", "5.14", "", "EINVAL beyond the quota: cut to it"},
	plan.CPUIdle:              {"5.15", "5.15", "", "file missing: SCHED_IDLE or weight instead"},
	plan.CPUBvt:               {anolis, anolis, "", "file missing: cpu.idle, SCHED_IDLE or weight instead"},
	plan.SchedPolicy:          {"", "", "sched_setattr(2) of every thread, Linux 3.14", "EPERM without CAP_SYS_NICE"},
	plan.CPUSetCPUs:           {"2.6.24", "5.0", "", "v1: EACCES outside the parent's set (cut to it), EBUSY below a child's, ENOSPC when emptied with tasks"},
	plan.CPUSetMems:           {"2.6.24", "5.0", "", "as cpuset.cpus; a change migrates pages"},
	plan.MemoryLimit:          {"2.6.25", "4.5", "", "v2: reclaim, then OOM kill inside the write; v1: EBUSY below what can be reclaimed"},
	plan.MemoryMin:            {anolis, "4.18", "", missing},
	plan.MemoryLow:            {anolis, "4.5", "", missing},
	plan.MemoryHigh:           {anolis, "4.5", "", missing},
	plan.MemoryOOMGroup:       {anolis, "4.19", "", missing},
	plan.MemoryWmarkRatio:     {anolis, anolis, "", missing},
	plan.MemoryWmarkScale:     {anolis, anolis, "", missing},
	plan.MemoryWmarkMinAdj:    {anolis, anolis, "", missing},
	plan.MemoryPriority:       {anolis, anolis, "", missing},
	plan.MemoryUsePriorityOOM: {anolis, anolis, "", missing},
	plan.PageCacheEnable:      {"", "Anolis/Alinux", "", missing},
	plan.PageCacheSize:        {"", "Anolis/Alinux", "", missing},
	plan.PageCacheSync:        {"", "Anolis/Alinux", "", missing},
	plan.IOReadBPS:            {"2.6.37", "4.5", "", "ENODEV for a device that is gone"},
	plan.IOWriteBPS:           {"2.6.37", "4.5", "", "ENODEV for a device that is gone"},
	plan.IOReadIOPS:           {"2.6.37", "4.5", "", "ENODEV for a device that is gone"},
	plan.IOWriteIOPS:          {"2.6.37", "4.5", "", "ENODEV for a device that is gone"},
	plan.IOWeight:             {anolis, "5.4", "", "without iocost on the device (io.cost.qos): no effect, EOPNOTSUPP on newer kernels; BFQ reads io.bfq.weight instead"},
	plan.IOLatency:            {"", "4.19", "", missing},
	plan.RDTClass:             {"", "", "resctrl GROUP/tasks, 4.10", "group missing: ENOENT"},
	plan.RDTSchemata:          {"", "", "resctrl GROUP/schemata, 4.10", "EINVAL, cause in info/last_cmd_status"},
	plan.RDTMonGroup:          {"", "", "resctrl GROUP/mon_groups, 4.14", "ENOSPC when no RMID is free"},
	plan.CoreSchedCookie:      {"", "", "prctl(PR_SCHED_CORE), 5.14", "ENODEV without SMT, EINVAL without CONFIG_SCHED_CORE"},
	plan.OOMScoreAdj:          {"", "", "/proc/PID/oom_score_adj, 2.6.36", "EACCES below the parent's without CAP_SYS_RESOURCE"},
	plan.Env:                  {"", "", "process.env", notFile},
	plan.Device:               {"", "", "linux.devices and the device cgroup", notFile},
	plan.CDIDevice:            {"", "", "CDI", notFile},
	plan.Mount:                {"", "", "mounts", notFile},
	plan.VMMinFree:            {"", "", "/proc/sys/vm/min_free_kbytes", missing},
	plan.VMWatermarkScale:     {"", "", "/proc/sys/vm/watermark_scale_factor, Linux 4.6", missing},
	plan.IOCostQoS:            {anolis, "5.4", "", "root cgroup only; EOPNOTSUPP for a disk of stacked or memory devices, ENODEV for one that is gone"},
	plan.IOCostModel:          {anolis, "5.4", "", "root cgroup only; EOPNOTSUPP for a disk of stacked or memory devices, ENODEV for one that is gone"},
	plan.NetShape:             {"", "", "rtnetlink: HTB, u32, mirred and IFB, 4.5", "ENOENT without the queue or the classifier, EOPNOTSUPP without IFB: that direction is left alone"},
}

// Table lists every knob in plan order, for the generated knob reference and for probing.
func Table() []File {
	out := make([]File, 0, plan.NumKnobs-1)
	for k := plan.KnobNone + 1; k < plan.NumKnobs; k++ {
		o := origins[k]
		out = append(out, File{
			Knob: k, V1Controller: v1.Controller(k), V1: v1.Hierarchy{}.File(k), V2: v2.Hierarchy{}.File(k), Elsewhere: o.elsewhere,
			Unit: k.Info().Unit, Range: rangeOf(k), SinceV1: o.v1, SinceV2: o.v2, Failure: o.failure,
		})
	}
	return out
}

// rangeOf prints "2..262144", "1000.. or -1", "0.." or "text".
func rangeOf(k plan.Knob) string {
	info := k.Info()
	if info.Text {
		return "text"
	}
	s := strconv.FormatInt(info.Min, 10) + ".."
	if info.Max != unit.Unlimited {
		s += strconv.FormatInt(info.Max, 10)
	}
	if k.Unlimitable() {
		s += " or -1"
	}
	return s
}

// Failure says, for one knob, what happens where the file is missing or the kernel refuses the value.
func Failure(k plan.Knob) string {
	if k >= plan.NumKnobs {
		return ""
	}
	return origins[k].failure
}
