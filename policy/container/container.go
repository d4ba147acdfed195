// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package container decides what one container must have: every knob of its own cgroup, its process and its spec.
//
// Input is a node.View, a workload.Pod and one of its containers, output a plan.Plan that names owner and reason of each
// value, and the problems of input that could not be used. The same functions serve the NRI plugin, the CRI proxy and
// the reconciler. It imports model, api, policy/draft, policy/llc and the standard library only; never os, net, log,
// fmt, time's clock or another room.
package container

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/draft"
)

// job is the work on one container.
type job struct {
	draft.Draft
	c *workload.Container
	// batch holds the container's batch or mid amounts when hasBatch.
	batch    draft.Amounts
	hasBatch bool
	// pinned says that the container owns CPUs.
	pinned bool
}

// Decide returns what the container must have, feature by feature. A value equal to what the kubelet already asked for
// is not planned; a container for which nothing is to be done has a nil plan. Features that are off, opted out of or
// ceded plan nothing; observed ones mark their settings. Problems name the label or annotation; whatever is valid is
// planned all the same.
func Decide(v *node.View, p *workload.Pod, c *workload.Container) (plan.Plan, []protocol.Problem) {
	j := newJob(v, p, c)
	if j.Empty() {
		return nil, nil
	}
	j.batch, j.hasBatch = draft.BatchOf(v, p, c.Name)
	j.cpuset()
	j.batchResources()
	loop := v.Dynamic.Quotas[p.UID]
	quota := j.quota(loop.Factors[c.ID], loop.Cap)
	j.Burst(j.cpuLimit(), c.Base.CPULimit(), quota)
	j.identity()
	j.memory()
	j.llc()
	j.BlkIO()
	j.oomScore()
	j.coreSched()
	j.devices()
	return j.Plan, j.Problems
}

// newJob opens the draft of a container.
func newJob(v *node.View, p *workload.Pod, c *workload.Container) job {
	j := job{Draft: draft.New(v, p, c.Target(p)), c: c}
	j.Period = c.Base.Period
	return j
}

// BaseQuota is the quota of unit.CFSPeriod that would stand without the loops (View.Dynamic.Quotas), unit.Unlimited for none: what
// policy/burst raises.
func BaseQuota(v *node.View, p *workload.Pod, c *workload.Container) unit.Micros {
	j := newJob(v, p, c)
	j.batch, j.hasBatch = draft.BatchOf(v, p, c.Name)
	j.cpuset()
	return j.PerCFSPeriod(j.quota(0, 0))
}

func (j *job) quota(factor unit.Fraction, most unit.MilliCPU) unit.Micros {
	return j.Quota(draft.QuotaInput{
		Base: j.c.Base.Quota, Batch: j.batch, HasBatch: j.hasBatch, Pinned: j.pinned, Factor: factor, Cap: most,
	})
}

// cpuLimit is the Kubernetes CPU limit: the pod cache's, else the one that the kubelet's quota stands for.
func (j *job) cpuLimit() unit.MilliCPU {
	if s, ok := j.View.Pods[j.Pod.UID].Containers[j.c.Name]; ok && s.CPULimit > 0 {
		return s.CPULimit
	}
	return j.c.Base.CPULimit()
}
