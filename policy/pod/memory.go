// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/draft"
)

// memory plans the pod's memory limit (batch, and room above its containers), its protections and what vendor kernels
// add. memory.high stands on containers only (upstream).
func (j *job) memory() {
	var m draft.Memory
	enabled := false
	if j.Plans(protocol.FeatureMemory) {
		m, enabled = draft.MemoryOf(j.View, j.Pod)
	}
	var own Sums
	if enabled {
		own = j.derive(&m)
	}
	tight := enabled && (own.Tight || j.sum.Tight) && j.View.Kernel.Cgroup == node.CgroupV2 && j.Takes(protocol.FeatureMemory, plan.MemoryMin)
	limit := j.memoryLimit(tight)
	if !enabled {
		return
	}
	if !j.View.Kernel.KubeletMemoryQoS {
		j.protect(plan.MemoryMin, max(own.Min, j.sum.Min))
		j.protect(plan.MemoryLow, max(own.Low, j.sum.Low, own.Min, j.sum.Min))
	}
	j.Reclaim(&m)
	j.pageCache(&m, limit)
}

func (j *job) protect(k plan.Knob, n unit.Bytes) {
	if n > 0 {
		j.Set(protocol.FeatureMemory, k, plan.Int(n), "sum of its containers")
	}
}

// derive is what the containers will protect, as far as it is known before they exist: from the pod cache or the
// extended resources each one's own, for a Guaranteed pod its limit; nothing for others, whose requests nobody tells.
func (j *job) derive(m *draft.Memory) (s Sums) {
	p := j.Pod
	specs := j.View.Pods[p.UID].Containers
	extended := draft.Extended(j.View, p)
	for name, spec := range specs {
		c := workload.Container{Name: name}
		a, ok := draft.BatchOf(j.View, p, name)
		request, _ := draft.Request(j.View, p, &c, &a, ok)
		limit, why := draft.MemoryLimit(unit.Opt{}, &a, ok, j.Active())
		if why == "" {
			limit = spec.MemoryLimit
		}
		s.protect(m, request, limit)
	}
	for name := range extended {
		if _, seen := specs[name]; seen {
			continue
		}
		if a, ok := draft.BatchOf(j.View, p, name); ok {
			limit, _ := draft.MemoryLimit(unit.Opt{}, &a, ok, j.Active())
			s.protect(m, unit.Bytes(max(a.MemoryRequest.V, 0)), limit)
		}
	}
	if len(specs)+len(extended) == 0 && p.KubeQoS == protocol.KubeGuaranteed {
		limit := p.Base.MemLimit()
		s.protect(m, limit, limit)
	}
	return s
}

func (s *Sums) protect(m *draft.Memory, request, limit unit.Bytes) {
	minimum, low := m.Protection(request)
	s.Min += minimum
	s.Low += low
	s.Tight = s.Tight || draft.Tight(minimum, limit)
}

// Room is what a pod's memory limit gets above the kubelet's when a container protects more than 90 % of its own limit:
// 1/64 of the limit, at least 32 MiB. The container then meets its own limit first, and there its own protection does
// not count; at the pod's limit reclaim could not touch it and page cache alone would end in an OOM kill
// (kubernetes#126498). Example: 8 GiB gives 128 MiB.
func Room(limit unit.Bytes) unit.Bytes { return max(32<<20, limit/64) }

// memoryLimit composes the pod's memory limit: the kubelet's, or the batch sum, and the room above tight containers. It
// returns the limit without the room, 0 for none.
func (j *job) memoryLimit(tight bool) unit.Bytes {
	base := unit.Bytes(max(j.Pod.Base.MemoryLimit.Or(0), 0))
	value, limit, owner, why := j.composeLimit(tight, j.Active())
	if value != base {
		j.Set(owner, plan.MemoryLimit, plan.Int(value), why)
		return limit
	}
	if seen, _, owner, why := j.composeLimit(tight, j.Planned()); seen != base && j.Takes(owner, plan.MemoryLimit) {
		j.Set(owner, plan.MemoryLimit, plan.Int(seen), why)
		j.Plan[len(j.Plan)-1].Observe = true
	}
	return limit
}

func (j *job) composeLimit(tight bool, use protocol.FeatureSet) (value, limit unit.Bytes, owner protocol.Feature, why string) {
	limit, why = draft.MemoryLimit(j.Pod.Base.MemoryLimit, &j.batch, j.hasBatch, use)
	value, owner = limit, protocol.FeatureBatch
	if tight && limit > 0 && use.Has(protocol.FeatureMemory) {
		value += Room(limit).PageDown()
		owner, why = protocol.FeatureMemory, "room above its containers, whose memory.min is over 90% of their limit: they must meet their own limit first"
	}
	return value, limit, owner, why
}

// pageCache plans the vendor kernels' limit of page cache: pageCacheLimitSize, at most the limit, else
// pageCacheLimitPercent of it.
func (j *job) pageCache(m *draft.Memory, limit unit.Bytes) {
	f := protocol.FeatureMemory
	if !draft.On(m.QOS.PageCacheEnable) || !j.Takes(f, plan.PageCacheEnable) {
		return
	}
	var size unit.Bytes
	if q := m.QOS.PageCacheLimitSize; q != nil {
		n, err := q.Value()
		if err != nil {
			j.Problem(protocol.AnnotationMemoryQOS, "pageCacheLimitSize is not a quantity")
		}
		size = unit.Bytes(n)
		if limit > 0 {
			size = min(size, limit)
		}
	}
	if size == 0 {
		size = unit.Percent(draft.Num(m.QOS.PageCacheLimitPercent)).Of(limit)
	}
	if size = size.PageDown(); size <= 0 {
		return
	}
	j.Set(f, plan.PageCacheSize, plan.Int(size), m.Why)
	if draft.On(m.QOS.PageCacheReclaimSync) {
		j.Set(f, plan.PageCacheSync, plan.Int(1), m.Why)
	}
	j.Set(f, plan.PageCacheEnable, plan.Int(1), m.Why)
}
