// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container

import (
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/draft"
)

// Claim returns the CPUs that the container takes for itself: the scheduler's cpuset of an LSE or LSR pod (or of a pod
// without label, which counts as LSR) as far as it is online, not reserved, and not claimed by another LSE pod (an LSE
// pod shares with no LSR pod either). The claims of the pod's own containers, View.Claims.ByPod, are no conflict.
//
// A claim that would lift the CPUs claimed on the node above Limits.ExclusivePercent is refused as a whole: a pod
// squeezed on a part of its CPUs would be worse off than in the share pool with its quota. Both sets are empty when
// nothing is claimed, also when the cpuset feature does not write for this pod. The container itself has no influence:
// all containers of a pod share its CPUs.
func Claim(v *node.View, p *workload.Pod, _ *workload.Container) (lse, lsr topo.CPUSet, problems []protocol.Problem) {
	active, _ := draft.Features(v, p)
	if !active.Has(protocol.FeatureCPUSet) {
		return lse, lsr, nil
	}
	cpus, problems := claim(v, p)
	if draft.PinClass(p) == protocol.QoSLSE {
		return cpus, lsr, problems
	}
	return lse, cpus, problems
}

// claim is Claim without the gate.
func claim(v *node.View, p *workload.Pod) (topo.CPUSet, []protocol.Problem) {
	class := draft.PinClass(p)
	status := p.Ask.ResourceStatus
	if class != protocol.QoSLSE && class != protocol.QoSLSR || status == nil || status.CPUSet == "" || v.Topology == nil {
		return topo.CPUSet{}, nil
	}
	want, err := topo.ParseCPUSet(status.CPUSet)
	if err != nil {
		return topo.CPUSet{}, cpuProblem(nil, "not a CPU list")
	}
	var problems []protocol.Problem
	all := v.Topology.All()
	problems = lost(problems, want, all, "not online")
	want = want.Intersect(all)
	own := v.Claims.ByPod[p.UID]
	lse, lsr := v.Claims.LSE.Minus(own.LSE), v.Claims.LSR.Minus(own.LSR)
	want, problems = without(want, v.Claims.Reserved, problems, "reserved for the system")
	if v.Dynamic.SystemQoSExclusive {
		want, problems = without(want, v.Dynamic.SystemQoS, problems, "exclusive to SYSTEM pods")
	}
	want, problems = without(want, lse, problems, "claimed by another LSE pod")
	if class == protocol.QoSLSE {
		want, problems = without(want, lsr, problems, "claimed by an LSR pod")
	}
	if want.Empty() {
		return topo.CPUSet{}, cpuProblem(problems, "no CPU is left to claim: the pod runs in the share pool")
	}
	taken := want.Union(lse).Union(lsr).Len()
	if most := all.Len() * int(v.Limits.ExclusivePercent) / 100; taken > most {
		return topo.CPUSet{}, cpuProblem(problems, "claims "+strconv.Itoa(want.Len())+" CPUs, which lifts the node to "+strconv.Itoa(taken)+
			" claimed CPUs above its limit of "+strconv.Itoa(most)+" (limits.nodeCPUSetMaxPercent): the pod runs in the share pool")
	}
	return want, problems
}

// without removes the members of not and reports them.
func without(want, not topo.CPUSet, problems []protocol.Problem, why string) (topo.CPUSet, []protocol.Problem) {
	if !want.Overlaps(not) {
		return want, problems
	}
	return want.Minus(not), cpuProblem(problems, "CPUs "+short(want.Intersect(not))+" are "+why)
}

// lost reports the members of want that are not in have.
func lost(problems []protocol.Problem, want, have topo.CPUSet, why string) []protocol.Problem {
	if want.SubsetOf(have) {
		return problems
	}
	return cpuProblem(problems, "CPUs "+short(want.Minus(have))+" are "+why)
}

// short renders a set for a message.
func short(s topo.CPUSet) string {
	list := s.String()
	if len(list) > 64 {
		return list[:64] + "..."
	}
	return list
}

func cpuProblem(problems []protocol.Problem, reason string) []protocol.Problem {
	return append(problems, protocol.Problem{Key: protocol.AnnotationResourceStatus, Reason: reason})
}
