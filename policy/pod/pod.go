// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package pod decides what a pod's own cgroup and its ancestors must have.
//
// Inputs are a node.View, a workload.Pod and the sums over its containers, output plans with owner and reason, and
// problems. It imports model, api, policy/draft, policy/container and the standard library only; never os, net, log,
// fmt, time's clock or another room.
package pod

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/container"
	"github.com/koord-rt/koord-rt/policy/draft"
)

// job is the work on one pod.
type job struct {
	draft.Draft
	sum      Sums
	batch    draft.Amounts
	hasBatch bool
}

// Decide returns what the pod's cgroup must have. At RunPodSandbox the sums are zero and values derive from what the
// kubelet asked for the pod, the annotations and the pod cache; later the larger of both holds. Filters, problems and
// values equal to the kubelet's are as in container.Decide. The resctrl group of a pod is llc.PodGroup's.
func Decide(v *node.View, p *workload.Pod, sum Sums) (plan.Plan, []protocol.Problem) {
	j := newJob(v, p)
	j.sum = sum
	if j.Empty() {
		return nil, nil
	}
	j.batch, j.hasBatch = draft.BatchPod(v, p)
	switch idle := j.identity(); {
	case idle:
	case j.hasBatch && j.batch.CPURequest.Set:
		j.Shares(p.Base.Shares, &j.batch)
	default:
		j.aboveIdle()
	}
	loop := v.Dynamic.Quotas[p.UID]
	quota := j.quota(loop.Plus, loop.Cap)
	j.Burst(j.cpuLimit(), p.Base.CPULimit(), quota)
	j.memory()
	j.BlkIO()
	return j.Plan, j.Problems
}

// newJob opens the draft of a pod.
func newJob(v *node.View, p *workload.Pod) job {
	j := job{Draft: draft.New(v, p, p.Target())}
	j.Period = p.Base.Period
	if p.Base.Quota.V <= 0 && (v.Ceded.Has(plan.CPUPeriod) || !v.Kernel.Has(plan.CPUPeriod)) {
		j.Period = unit.Opt{} // the kubelet has written none here, and nor may we
	}
	return j
}

// BaseQuota is the quota of unit.CFSPeriod that would stand without the loops (View.Dynamic.Quotas), unit.Unlimited for none.
func BaseQuota(v *node.View, p *workload.Pod) unit.Micros {
	j := newJob(v, p)
	j.batch, j.hasBatch = draft.BatchPod(v, p)
	return j.PerCFSPeriod(j.quota(0, 0))
}

func (j *job) quota(plus unit.Micros, most unit.MilliCPU) unit.Micros {
	return j.Quota(draft.QuotaInput{
		Base: j.Pod.Base.Quota, Batch: j.batch, HasBatch: j.hasBatch,
		Pinned:          j.Takes(protocol.FeatureCPUSet, plan.CPUSetCPUs) && container.Owns(j.View, j.Pod),
		NoNormalization: j.View.Kernel.Cgroup == node.CgroupV1, Plus: plus, Cap: most,
	})
}

// identity plans the pod's part of the CPU identity: cpu.bvt where the kernel has it, else cpu.idle for pods below
// kubepods-besteffort, whose weight the kubelet writes once, before us, and never again (no CPU request, no resize).
// Elsewhere, and on the QoS directories, a later weight write would fail with EINVAL. An idle group has no weight of its
// own, so a pod with a batch-cpu request, whose shares tell it apart from other BE pods, is idle only where the class says
// schedIdle 1. Idle says that cpu.idle will be written: the pod then must not get shares.
func (j *job) identity() (idle bool) {
	id, ok := j.Identity()
	if !ok {
		return false
	}
	f := protocol.FeatureIdentity
	if id.HasBvt {
		j.Set(f, plan.CPUBvt, plan.Int(id.Bvt), id.Why)
	}
	weighed := j.hasBatch && j.batch.CPURequest.Set && !id.Explicit
	if !id.Idle || weighed || j.Pod.KubeQoS != protocol.KubeBestEffort || !j.Takes(f, plan.CPUIdle) {
		return false
	}
	j.Set(f, plan.CPUIdle, plan.Int(1), id.Why+": idle among the pods of its QoS directory")
	return j.Writes(f)
}

// sharesAboveIdle are what Linux gives a cgroup of which nobody says anything, and Kubernetes a request of one CPU.
const sharesAboveIdle = 1024

// aboveIdle keeps a pod that is not idle above those beside it that are, however many. The kernel weighs each idle group 3
// (kernel/sched/sched.h, WEIGHT_IDLEPRIO), and a pod without a CPU request 2 on cgroup v1 and 10 on v2: one idle pod that computes
// beside it would have more on v1, four on v2. What stands outside the QoS directory is not concerned, the directory's own weight
// stays. The kubelet writes these shares once, before us, as those of identity.
func (j *job) aboveIdle() {
	if j.Pod.KubeQoS != protocol.KubeBestEffort || j.Pod.Class() == protocol.QoSBE ||
		j.Pod.Base.Shares.Or(int64(unit.MinShares)) >= sharesAboveIdle || !j.BesideIdle() {
		return
	}
	j.Set(protocol.FeatureIdentity, plan.CPUShares, plan.Int(sharesAboveIdle), "above the idle pods of class BE beside it, which weigh 3 each")
}

// cpuLimit is the pod's limit: the sum of the containers' in the pod cache when each has one, else what the kubelet's
// quota stands for.
func (j *job) cpuLimit() unit.MilliCPU {
	var sum unit.MilliCPU
	for _, c := range j.View.Pods[j.Pod.UID].Containers {
		if c.CPULimit <= 0 {
			return j.Pod.Base.CPULimit()
		}
		sum += c.CPULimit
	}
	if sum > 0 {
		return sum
	}
	return j.Pod.Base.CPULimit()
}
