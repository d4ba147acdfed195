// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package feature

import (
	"strconv"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

func batch(r *report) {
	r.need(plan.CPUShares)
	r.need(plan.CPUQuota)
	r.need(plan.MemoryLimit)
	if r.v.Pods == nil {
		r.notes = append(r.notes, "amounts come from the extended-resource-spec annotation only: there is no pod cache from a node agent")
	}
}

func cpuset(r *report) {
	if !r.need(plan.CPUSetCPUs) {
		return
	}
	if r.v.Kernel.KubeletStaticCPU {
		r.limited = append(r.limited, "kubelet's static CPU manager is on: containers it placed keep their CPUs unless the pod is LSE or LSR")
	}
	if r.v.Kernel.KubeletStaticMemory {
		r.limited = append(r.limited, "kubelet's static memory manager is on: cpuset.mems is left to it")
	} else {
		r.want(plan.CPUSetMems)
	}
	if !r.v.Dynamic.Known {
		r.notes = append(r.notes, "no suppression set or share pools from a node agent: pools are all CPUs without the claimed ones")
	}
}

func identity(r *report) {
	k := &r.v.Kernel
	r.late(plan.CPUBvt)
	if k.Has(plan.CPUBvt) && !r.v.Ceded.Has(plan.CPUBvt) {
		r.notes = append(r.notes, "group identity by cpu.bvt_warp_ns")
		return
	}
	why := "this kernel has no cpu.bvt_warp_ns"
	if r.v.Ceded.Has(plan.CPUBvt) {
		why = "cpu.bvt is ceded to another plugin"
	}
	idle := k.AtLeast(5, 4) && k.Has(plan.SchedPolicy) && !r.v.Ceded.Has(plan.SchedPolicy)
	group := k.Has(plan.CPUIdle) && !r.v.Ceded.Has(plan.CPUIdle)
	switch {
	case idle && k.AtLeast(6, 12):
		r.limited = append(r.limited, why+": BE processes run as SCHED_IDLE, which since Linux 6.12 guides wake-up placement only")
	case idle:
		r.limited = append(r.limited, why+": BE processes run as SCHED_IDLE")
	case group:
		r.limited = append(r.limited, why+" and no SCHED_IDLE placement (Linux 5.4)")
	default:
		r.missing = append(r.missing, why+", no cpu.idle (Linux 5.15) and no SCHED_IDLE placement (Linux 5.4); weights alone tell classes apart")
		return
	}
	if group {
		r.limited = append(r.limited, "BestEffort pods without batch-cpu, or with schedIdle 1, get cpu.idle among each other; QoS directories are the kubelet's and keep their weights")
		besideIdle(r)
	}
	if idle && r.byCRI() {
		r.late(plan.SchedPolicy)
	} else if idle && !r.v.Runtime.Fields.Scheduler {
		r.notes = append(r.notes, r.runtime()+" does not apply a scheduler from NRI: it is set at StartContainer")
	}
}

// besideIdle tells what pods of other classes have beside idle ones, which have a weight of their own: n of them 3n/(3n+w) of what
// they share with a pod of weight w.
func besideIdle(r *report) {
	weight, one, eight := "10", "0.23", "0.71"
	if r.v.Kernel.Cgroup == node.CgroupV1 {
		weight, one, eight = "2", "0.6", "0.92"
	}
	weights := "the kernel weighs each idle pod 3 and a pod without a CPU request " + weight
	if r.v.Ceded.Has(plan.CPUShares) {
		r.limited = append(r.limited, weights+", and cpu.shares is ceded to another plugin: where all compute, one BE pod has "+one+
			" of what it shares with a pod of another class, eight have "+eight)
		return
	}
	r.notes = append(r.notes, weights+": those of other classes than BE get cpu.shares 1024")
}

func burst(r *report) {
	if !r.need(plan.CPUBurst) {
		return
	}
	r.late(plan.CPUBurst)
	if r.byCRI() && r.v.Kernel.Cgroup == node.CgroupV1 {
		r.notes = append(r.notes, "cpu.burst is written while the runtime prepares the container, after its start only where that is missed")
	}
	program := "koord-nri"
	if r.byCRI() {
		program = "koord-runtime-proxy"
	}
	r.notes = append(r.notes, "a resize to a quota below the burst is refused by the kernel while "+program+" is away; the kubelet's next try after that succeeds")
	if !r.v.Runtime.Fields.UpdatePod {
		what := "UpdatePodSandbox event: "
		if r.byCRI() {
			what = "UpdatePodSandboxResources call: unless the kubelet makes it all the same, "
		}
		r.limited = append(r.limited, r.runtime()+" has no "+what+"a pod's burst is lowered only with its containers' updates; "+
			"a smaller quota of the pod alone, below its burst, cannot be caught and the kernel refuses it")
	}
}

func normalization(r *report) {
	if !r.need(plan.CPUQuota) {
		return
	}
	ratio := int64(r.v.Dynamic.Normalization)
	if ratio <= 100 {
		r.notes = append(r.notes, "no ratio above 1 is published for this node")
		return
	}
	r.notes = append(r.notes, "ratio "+strconv.FormatFloat(float64(ratio)/100, 'f', 2, 64))
}

func coreSched(r *report) {
	if !r.v.Limits.CoreSched {
		r.off = append(r.off, "switched off in the node's limits")
		return
	}
	r.late(plan.CoreSchedCookie)
	if r.need(plan.CoreSchedCookie) && r.v.Topology != nil && !r.v.Topology.SMT() {
		r.limited = append(r.limited, "no core has more than one thread: cookies have no effect")
	}
}
