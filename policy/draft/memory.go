// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package draft

import (
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Memory is the memory QoS that holds for one pod.
type Memory struct {
	// QOS holds the class' leaves, overlaid by the annotation's.
	QOS strategy.MemoryQOS
	// MinPercent and LowPercent are capped where they come from the annotation; MinCapped and LowCapped say so.
	MinPercent, LowPercent unit.Percent
	MinCapped, LowCapped   bool
	// Most is the node's share that one container may protect (Limits.MemoryNodePercent), 0 for no such cap.
	Most unit.Bytes
	// OOMGroupAsked says that the annotation names oomKillGroup.
	OOMGroupAsked bool
	// Why names the source.
	Why string
}

// MemoryOf returns the memory QoS of a pod: that of its class (derived for pods without label) if enabled, overlaid by
// the memoryQOS annotation. The annotation's policy none switches it off, auto switches it on even where the class is
// disabled, default follows the class; fields it gives count in every case but none or enable=false.
func MemoryOf(v *node.View, p *workload.Pod) (m Memory, ok bool) {
	m.Most = NodeShare(v)
	ask := p.Ask.MemoryQOS
	if ask != nil && (ask.Policy == strategy.MemoryPolicyNone || ask.Enable != nil && !*ask.Enable) {
		return m, false
	}
	class := p.Class()
	if class != protocol.QoSNone {
		q := v.Strategy.ClassFor(class.String()).MemoryQOS
		if ok = On(q.Enable); ok || ask != nil && ask.Policy == strategy.MemoryPolicyAuto {
			m.QOS, m.Why = *q, classWhy(class)
		}
	}
	m.MinPercent, m.LowPercent = unit.Percent(Num(m.QOS.MinLimitPercent)), unit.Percent(Num(m.QOS.LowLimitPercent))
	if ask == nil {
		return m, ok
	}
	if m.Why == "" {
		m.Why = "annotation memoryQOS"
	} else {
		m.Why += " with annotation memoryQOS"
	}
	if ask.MinLimitPercent != nil {
		m.MinPercent, m.MinCapped = capPercent(*ask.MinLimitPercent, v.Limits.MemoryMinPercent)
	}
	if ask.LowLimitPercent != nil {
		m.LowPercent, m.LowCapped = capPercent(*ask.LowLimitPercent, v.Limits.MemoryLowPercent)
	}
	m.OOMGroupAsked = ask.OomKillGroup != nil
	overlay(&m.QOS, &ask.MemoryQOS)
	return m, true
}

// NodeShare is how much memory pods may protect on this node, one or all together; 0 without such a cap, or when the node's
// memory is not known.
func NodeShare(v *node.View) unit.Bytes {
	return v.Limits.MemoryNodePercent.Of(v.MemAllocatable).PageDown()
}

// NodeShareWhy names that cap in a reason.
const NodeShareWhy = ", capped by the node's memoryNodePercentMax"

// Beyond reports whether a request is more than the node lets anybody protect.
func (m *Memory) Beyond(request unit.Bytes) bool { return m.Most > 0 && request > m.Most }

func capPercent(asked int64, most unit.Percent) (unit.Percent, bool) {
	return min(unit.Percent(asked), most), unit.Percent(asked) > most
}

// overlay copies the leaves that are given.
func overlay(to, from *strategy.MemoryQOS) {
	pick(&to.ThrottlingPercent, from.ThrottlingPercent)
	pick(&to.WmarkRatio, from.WmarkRatio)
	pick(&to.WmarkScalePermill, from.WmarkScalePermill)
	pick(&to.WmarkMinAdj, from.WmarkMinAdj)
	pick(&to.PriorityEnable, from.PriorityEnable)
	pick(&to.Priority, from.Priority)
	pick(&to.OomKillGroup, from.OomKillGroup)
	pick(&to.PageCacheEnable, from.PageCacheEnable)
	pick(&to.PageCacheLimitPercent, from.PageCacheLimitPercent)
	pick(&to.PageCacheLimitSize, from.PageCacheLimitSize)
	pick(&to.PageCacheReclaimSync, from.PageCacheReclaimSync)
}

func pick[T any](to **T, from *T) {
	if from != nil {
		*to = from
	}
}

// Protection returns memory.min and memory.low for a request:
//
//	min = request × minLimitPercent, low = request × lowLimitPercent but at least min, both down to a page
//
// of a request that counts up to Most.
//
// Example: request 2 GiB, 20 % gives 429494272.
func (m *Memory) Protection(request unit.Bytes) (minimum, low unit.Bytes) {
	if m.Beyond(request) {
		request = m.Most
	}
	minimum = m.MinPercent.Of(request).PageDown()
	return minimum, max(m.LowPercent.Of(request).PageDown(), minimum)
}

// High returns memory.high:
//
//	limitPercent (default):  limit × throttlingPercent
//	requestLimitRange:       request + (limit − request) × throttlingPercent (upstream, KEP-2570)
//
// down to a page; without a limit the node's allocatable memory stands in. 0 means unlimited. For every class but BE it
// is never below low. Example: limit 2 GiB, 80 % gives 1717985280.
func (m *Memory) High(v *node.View, qos protocol.QoS, request, limit, low unit.Bytes) unit.Bytes {
	percent := unit.Percent(Num(m.QOS.ThrottlingPercent))
	if limit <= 0 {
		limit = v.MemAllocatable
	}
	if percent <= 0 || limit <= 0 {
		return 0
	}
	high := percent.Of(limit)
	if IsRequestRange(v) {
		request = min(request, limit)
		high = request + percent.Of(limit-request)
	}
	high = max(high.PageDown(), 4096)
	if qos != protocol.QoSBE {
		high = max(high, low)
	}
	return high
}

// Tight says that a limit is protected so far (more than nine tenths) that its own reclaim has next to nothing to take:
// page cache then makes the parent's limit kill (kubernetes#126498).
func Tight(minimum, limit unit.Bytes) bool { return limit > 0 && minimum > limit/10*9 }

// Request returns the memory request of a container with how it is known, "" when exact:
// the pod cache's; batch-memory or mid-memory; the limit for Guaranteed pods; for Burstable ones an estimate from the
// kubelet's oom_score_adj = 1000 − 1000 × request / capacity, which is exact to 0.1 % of the node and rounded down;
// otherwise 0.
//
// Example: capacity 128 GiB, oom_score_adj 984 gives 2199023248 (16 × 0.1 %).
func Request(v *node.View, p *workload.Pod, c *workload.Container, a *Amounts, hasBatch bool) (unit.Bytes, string) {
	if hasBatch && a.MemoryRequest.Set {
		return unit.Bytes(a.MemoryRequest.V), ""
	}
	if s, ok := v.Pods[p.UID].Containers[c.Name]; ok {
		return s.MemoryRequest, ""
	}
	switch p.KubeQoS {
	case protocol.KubeGuaranteed:
		return c.Base.MemLimit(), ""
	case protocol.KubeBurstable:
		adj := c.Base.OOMScoreAdj
		// 3 and 999 are the kubelet's bounds and stand for "almost all" and "almost nothing".
		if !adj.Set || adj.V <= 3 || adj.V >= 999 {
			return 0, ""
		}
		request := unit.Bytes(int64(v.MemCapacity) / 1000 * (1000 - adj.V))
		if limit := c.Base.MemLimit(); limit > 0 {
			request = min(request, limit)
		}
		return request, ", request estimated from oom_score_adj"
	default:
		return 0, ""
	}
}

// Reclaim plans what vendor kernels know of asynchronous reclaim, priority and group kill; neutral values are the
// kernel's own and are not planned. A group kill of 0 is planned only when the annotation asks for it: the kubelet sets
// 1 on containers by itself.
func (d *Draft) Reclaim(m *Memory) {
	f := protocol.FeatureMemory
	if n := Num(m.QOS.WmarkRatio); n > 0 {
		d.Set(f, plan.MemoryWmarkRatio, plan.Int(n), m.Why)
		if s := Num(m.QOS.WmarkScalePermill); s > 0 {
			d.Set(f, plan.MemoryWmarkScale, plan.Int(s), m.Why)
		}
	}
	if n := Num(m.QOS.WmarkMinAdj); n != 0 {
		d.Set(f, plan.MemoryWmarkMinAdj, plan.Int(n), m.Why)
	}
	if Num(m.QOS.PriorityEnable) == 1 {
		d.Set(f, plan.MemoryPriority, plan.Int(Num(m.QOS.Priority)), m.Why)
		d.Set(f, plan.MemoryUsePriorityOOM, plan.Int(1), m.Why)
	}
	if n := Num(m.QOS.OomKillGroup); n == 1 || m.OOMGroupAsked {
		d.Set(f, plan.MemoryOOMGroup, plan.Int(n), m.Why)
	}
}

// PercentWhy is "N% of request (source)" with the cap and the estimate named.
func PercentWhy(percent unit.Percent, of, source, estimated string, capped bool) string {
	b := make([]byte, 0, 96)
	b = strconv.AppendInt(b, int64(percent), 10)
	b = append(b, "% of "...)
	b = append(b, of...)
	b = append(b, " ("...)
	b = append(b, source...)
	b = append(b, estimated...)
	if capped {
		b = append(b, ", capped by the node"...)
	}
	return string(append(b, ')'))
}

// IsRequestRange reports whether memory.high is computed by upstream's formula.
func IsRequestRange(v *node.View) bool {
	return Str(v.Strategy.Policy().MemoryHighPolicy) == strategy.MemoryHighRequest
}
