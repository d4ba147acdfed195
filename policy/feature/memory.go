// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package feature

import (
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

func memory(r *report) {
	k := &r.v.Kernel
	if !k.Has(plan.MemoryMin) && !k.Has(plan.MemoryLow) && !k.Has(plan.MemoryHigh) {
		if k.Cgroup == node.CgroupV1 {
			r.missing = append(r.missing, "cgroup v1 has no memory.min, memory.low and memory.high on this kernel: they need cgroup v2")
			return
		}
		r.need(plan.MemoryHigh)
		return
	}
	r.want(plan.MemoryMin)
	r.want(plan.MemoryLow)
	r.want(plan.MemoryHigh)
	r.late(plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh, plan.MemoryOOMGroup, plan.MemoryWmarkRatio, plan.MemoryWmarkScale,
		plan.MemoryWmarkMinAdj, plan.MemoryPriority, plan.MemoryUsePriorityOOM, plan.PageCacheEnable, plan.PageCacheSize)
	if k.Systemd && k.Has(plan.MemoryOOMGroup) {
		r.notes = append(r.notes, "systemd 253 and later writes memory.oom.group of containers anew when it reloads: the drift check puts ours back")
	}
	if k.KubeletMemoryQoS {
		r.limited = append(r.limited, "kubelet's MemoryQoS is on: protections of pods and their ancestors are left to it")
	}
	if !k.Has(plan.MemoryWmarkRatio) {
		r.limited = append(r.limited, "this kernel has no memory.wmark_ratio: reclaim ahead of the limit is the node agent's work")
	}
	if !k.Has(plan.MemoryWmarkMinAdj) {
		r.limited = append(r.limited, "no memory.wmark_min_adj: by order of reclaim under node pressure, by the node agent")
	}
	if !k.Has(plan.MemoryPriority) {
		r.limited = append(r.limited, "no memory.priority")
	}
	if !k.Has(plan.PageCacheEnable) {
		r.limited = append(r.limited, "no memory.pagecache_limit")
	}
}

func cache(r *report) {
	rdt := &r.v.Kernel.RDT
	if !rdt.Mounted || !rdt.L3 && !rdt.MB {
		why := rdt.Why
		if why == "" {
			why = "resctrl offers neither cache nor bandwidth allocation"
		}
		r.missing = append(r.missing, why)
		return
	}
	if r.v.Ceded.Has(plan.RDTClass) {
		r.missing = append(r.missing, "rdt.class is ceded to another plugin")
		return
	}
	if !rdt.L3 {
		r.limited = append(r.limited, "no L3 cache allocation on this hardware")
	}
	if !rdt.MB {
		r.limited = append(r.limited, "no memory bandwidth allocation on this hardware")
	}
	if !rdt.Mon {
		r.limited = append(r.limited, "no monitoring groups: use is not counted per pod")
	}
	if r.byCRI() {
		r.limited = append(r.limited, "after start: a CRI request to "+r.runtime()+" cannot carry "+plan.RDTClass.String())
	} else if !r.v.Runtime.Fields.RDTClass {
		r.notes = append(r.notes, r.runtime()+" does not apply an RDT class: the process joins its group at StartContainer")
	}
	if !r.v.Limits.PodResctrl {
		r.notes = append(r.notes, "groups per pod are switched off in the node's limits")
	}
}

func oomScore(r *report) {
	if r.v.Ceded.Has(plan.OOMScoreAdj) {
		r.missing = append(r.missing, "oom_score_adj is ceded to another plugin")
		return
	}
	if r.byCRI() {
		r.late(plan.OOMScoreAdj)
	} else if !r.v.Runtime.Fields.OOMScoreAdj {
		r.notes = append(r.notes, r.runtime()+" does not apply oom_score_adj from NRI: it is written at StartContainer")
	}
}

func devices(r *report) {
	if !r.v.Limits.Devices {
		r.off = append(r.off, "switched off in the node's limits")
		return
	}
	if len(r.v.Kernel.Devices) == 0 && len(r.v.Kernel.CDI) == 0 {
		r.missing = append(r.missing, "no GPU or RDMA device nodes and no CDI device on this node")
		return
	}
	switch {
	case r.v.Runtime.Fields.CDI:
	case r.byCRI():
		r.limited = append(r.limited, r.runtime()+" does not apply CDI devices of a request (containerd 2.0, or 1.7 with enable_cdi and cdi: on): GPUs come as device nodes and NVIDIA_VISIBLE_DEVICES")
	default:
		r.limited = append(r.limited, r.runtime()+" does not apply CDI devices from NRI (containerd 2.1, or 1.7 from 1.7.30 on with enable_cdi and cdi: on in nri.yaml): GPUs come as device nodes and NVIDIA_VISIBLE_DEVICES")
	}
	if r.v.Kernel.HAMiLib == "" {
		r.notes = append(r.notes, "HAMi-core is not installed: limits by the label are not enforced")
	}
	if r.v.Pods == nil {
		r.limited = append(r.limited, "no pod cache from a node agent: which container of a pod asked for a device is not known")
	}
}
