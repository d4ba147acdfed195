// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/draft"
)

// place is where a container may run.
type place struct {
	cpus, mems topo.CPUSet
	why        string
	// ok is false when the container is left where it is; own says that it claims the CPUs.
	ok, own bool
}

// CPUSet returns the CPUs and memory nodes a container may use by the claims, pools and suppression of the view; mems is
// empty where they are left alone. Not ok when the container is not to be moved: the feature does not write for the pod,
// kubelet's static CPU manager placed it, or there is no set for its class. The set is also returned when it is the
// whole node, so that a caller can widen a container again after claims went away. It is never empty when ok.
func CPUSet(v *node.View, p *workload.Pod, c *workload.Container) (cpus, mems topo.CPUSet, why string, ok bool) {
	active, _ := draft.Features(v, p)
	if !active.Has(protocol.FeatureCPUSet) || v.Ceded.Has(plan.CPUSetCPUs) || !v.Kernel.Has(plan.CPUSetCPUs) {
		return cpus, mems, "", false
	}
	at, _ := locate(v, p, c)
	return at.cpus, at.mems, at.why, at.ok
}

// cpuset plans cpuset.cpus and, for containers that own their CPUs, cpuset.mems. A set equal to what the kubelet asked,
// or the whole node where it asked nothing, is not planned.
func (j *job) cpuset() {
	if !j.Plans(protocol.FeatureCPUSet) || j.View.Topology == nil {
		return
	}
	at, problems := locate(j.View, j.Pod, j.c)
	j.Problems = append(j.Problems, problems...)
	if !at.ok {
		return
	}
	j.pinned = at.own && j.Takes(protocol.FeatureCPUSet, plan.CPUSetCPUs)
	if base := j.c.Base.CPUs; base == "" && !at.own && j.View.Topology.All().SubsetOf(at.cpus) {
		return
	} else if list := at.cpus.String(); list != base {
		j.Set(protocol.FeatureCPUSet, plan.CPUSetCPUs, plan.Text(list), at.why)
	}
	if at.mems.Empty() {
		return
	}
	if list := at.mems.String(); list != j.c.Base.Mems {
		j.Set(protocol.FeatureCPUSet, plan.CPUSetMems, plan.Text(list), "memory of its CPUs")
	}
}

// Owns reports whether the pod's containers own CPUs, or would if the cpuset feature wrote for it: then its cgroup needs
// no quota.
func Owns(v *node.View, p *workload.Pod) bool {
	cpus, _ := claim(v, p)
	return !cpus.Empty()
}

// locate finds the place by class.
func locate(v *node.View, p *workload.Pod, c *workload.Container) (place, []protocol.Problem) {
	if v.Topology == nil || v.Topology.All().Empty() {
		return place{}, nil
	}
	class := draft.PinClass(p)
	var problems []protocol.Problem
	if class == protocol.QoSLSE || class == protocol.QoSLSR {
		var own topo.CPUSet
		if own, problems = claim(v, p); !own.Empty() {
			at := place{cpus: own, why: "the scheduler's CPUs", ok: true, own: true}
			if !v.Kernel.KubeletStaticMemory {
				at.mems = v.Topology.NodesOf(own)
			}
			return at, problems
		}
	}
	if v.Kernel.KubeletStaticCPU && c.Base.CPUs != "" {
		return place{}, problems
	}
	switch class {
	case protocol.QoSSystem:
		set := v.Dynamic.SystemQoS.Intersect(v.Topology.All())
		return place{cpus: set, why: "the SYSTEM pods' CPUs", ok: !set.Empty()}, problems
	case protocol.QoSBE:
		return bePlace(v, p), problems
	default:
		return lsPlace(v, p), problems
	}
}

// lsPlace is the share pool: the pools of the pod's NUMA nodes when the scheduler named some, else all pools, else every
// CPU that nobody owns. Empty sets give way: first to the whole share pool, then to all CPUs but LSE's, then to all.
func lsPlace(v *node.View, p *workload.Pod) place {
	free := shareable(v)
	if status := p.Ask.ResourceStatus; status != nil && len(status.NUMANodes) > 0 {
		if set := numaPools(v, status.NUMANodes, v.Dynamic.SharePools).Intersect(free); !set.Empty() {
			return place{cpus: set, why: "share pools of its NUMA nodes", ok: true}
		}
	}
	if v.Dynamic.Known && len(v.Dynamic.SharePools) > 0 {
		if set := union(v.Dynamic.SharePools).Intersect(free); !set.Empty() {
			return place{cpus: set, why: "share pools", ok: true}
		}
	}
	if !free.Empty() {
		return place{cpus: free, why: "CPUs that no pod owns", ok: true}
	}
	return fallback(v, "the share pool is empty: ")
}

// bePlace is the current suppression set without the CPUs that other classes own, within the BE pools of the pod's NUMA
// nodes when given; without suppression every CPU that nobody owns or, as the agent knows, keeps. LSR CPUs are shared when the node agent says so, or
// when nothing else is left.
func bePlace(v *node.View, p *workload.Pod) place {
	free := shareable(v)
	suppressed := !v.Dynamic.BECPUs.Empty() && v.Dynamic.Known
	if v.Dynamic.BESharesLSR && suppressed {
		free = v.Topology.All().MinusAll(v.Claims.LSE, v.Claims.Reserved, systemOnly(v))
	}
	set, why := free, "CPUs that no pod owns"
	switch {
	case suppressed:
		set, why = v.Dynamic.BECPUs.Intersect(free), "suppression set"
	case v.Dynamic.Known:
		// The agent knows more of what is reserved than the configuration.
		if pools := union(v.Dynamic.BESharePools).Intersect(free); !pools.Empty() {
			set = pools
		}
	}
	if status := p.Ask.ResourceStatus; status != nil && len(status.NUMANodes) > 0 && len(v.Dynamic.BESharePools) > 0 {
		if near := numaPools(v, status.NUMANodes, v.Dynamic.BESharePools).Intersect(set); !near.Empty() {
			set, why = near, "BE share pools of its NUMA nodes"
		}
	}
	if !set.Empty() {
		return place{cpus: set, why: why, ok: true}
	}
	if suppressed {
		if set = v.Dynamic.BECPUs.Intersect(v.Topology.All()).Minus(v.Claims.LSE); !set.Empty() {
			return place{cpus: set, why: "suppression set: only CPUs of LSR pods are left in it", ok: true}
		}
	}
	return fallback(v, "no CPU is left for BE: ")
}

// fallback is all CPUs but LSE's, or all: an empty cpuset would mean the parent's, or stop the container.
func fallback(v *node.View, cause string) place {
	all := v.Topology.All()
	if set := all.MinusAll(v.Claims.LSE, v.Claims.Reserved); !set.Empty() {
		return place{cpus: set, why: cause + "shares LSR CPUs", ok: true}
	}
	if set := all.Minus(v.Claims.LSE); !set.Empty() {
		return place{cpus: set, why: cause + "shares LSR and reserved CPUs", ok: true}
	}
	return place{cpus: all, why: cause + "LSE pods own every CPU", ok: true}
}

// shareable are the CPUs that nobody owns.
func shareable(v *node.View) topo.CPUSet {
	return v.Topology.All().MinusAll(v.Claims.LSE, v.Claims.LSR, v.Claims.Reserved, systemOnly(v))
}

func systemOnly(v *node.View) topo.CPUSet {
	if v.Dynamic.SystemQoSExclusive {
		return v.Dynamic.SystemQoS
	}
	return topo.CPUSet{}
}

// numaPools joins the pools of the nodes; without pools, the nodes' CPUs.
func numaPools(v *node.View, nodes []int, pools []node.Pool) topo.CPUSet {
	var set topo.CPUSet
	for _, n := range nodes {
		if len(pools) == 0 {
			set = set.Union(v.Topology.NodeCPUs(n))
		}
		for i := range pools {
			if pools[i].Node == n {
				set = set.Union(pools[i].CPUs)
			}
		}
	}
	return set
}

func union(pools []node.Pool) topo.CPUSet {
	var set topo.CPUSet
	for i := range pools {
		set = set.Union(pools[i].CPUs)
	}
	return set
}
