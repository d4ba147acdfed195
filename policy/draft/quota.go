// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package draft

import (
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// QuotaInput is what the quota of one cgroup is made of.
type QuotaInput struct {
	// Base is the kubelet's quota of Draft.Period; absent, 0 and negative mean unlimited. All else is of CFSPeriod.
	Base unit.Opt
	// Batch holds the batch or mid amounts when HasBatch.
	Batch    Amounts
	HasBatch bool
	// Pinned says that the cgroup owns CPUs, so a quota would only throttle what is already bounded.
	Pinned bool
	// NoNormalization keeps the node's ratio out: a cgroup v1 pod must not be smaller than a child that comes later.
	NoNormalization bool
	// Factor is how far the burst loop raises the container, ≤ 1 for not at all; Plus what it adds to a pod's.
	Factor unit.Fraction
	Plus   unit.Micros
	// Cap is what a BE pod that disturbs others is held to, 0 for nothing.
	Cap unit.MilliCPU
}

// The steps of the chain, in their order.
const (
	stepBatch = 1 << iota
	stepNormalization
	stepPinned
	stepSuppress
	stepRounded
	stepBurst
	stepCap
)

// Quota composes cpu.quota in this order and plans it when it differs from the base; it returns the final value that
// will stand in the kernel, unit.Unlimited for none:
//
//  1. base: the kubelet's quota, or the batch limit (batch-cpu milli × 100 µs, at least 1000)
//  2. normalisation: ⌈q / ratio⌉ for LS pods, pods without label and batch amounts, unless they own CPUs
//  3. burst: × Factor + Plus, what policy/burst has decided
//  4. cpuset: unlimited for pods that own CPUs
//  5. suppression by cfsQuota: unlimited for BE pods below the directory of Kubernetes' BestEffort class while the agent holds
//     that one to a quota. Upstream lifts by label and strategy alone: a BE pod with requests, which stands elsewhere, would be
//     held by nothing, and so would all of them where no agent writes the class's quota
//  6. Cap: at most that for a BE pod that disturbs others
//  7. where the cgroups are systemd units: what we made of it is rounded up to systemd's step, CPUQuotaPerSecUSec= in
//     10 ms per second, or systemd would write another value than the runtime
//
// The owner is the feature that had the last word. A step of an observed feature does not count in the final value; if
// only such steps change something, the result is planned observe-only.
//
// All of it is of 100 ms. Where the kubelet has another period the result is of that one, and is planned with it: the kubelet writes none to
// the cgroup of a pod without limits, and systemd is told a quota by the second.
//
// Examples: base 400000, ratio 1.20 gives 333334 owned by cpu-normalization; base 40000 of 10 ms gives 33333 of 10 ms.
func (d *Draft) Quota(in QuotaInput) unit.Micros {
	base := unit.Micros(in.Base.V)
	if base <= 0 {
		base = unit.Unlimited
	}
	asked := d.PerCFSPeriod(base)
	value, owner, steps := d.compose(asked, &in, d.active)
	if own := d.quotaOfPeriod(value); value != asked && own != base {
		d.setQuota(owner, own, d.quotaReason(base, &in, steps))
		if !d.Takes(owner, plan.CPUQuota) {
			return base
		}
		return own
	}
	if d.planned != d.active {
		seen, owner, steps := d.compose(asked, &in, d.planned)
		if own := d.quotaOfPeriod(seen); seen != asked && own != base && d.Takes(owner, plan.CPUQuota) {
			from := len(d.Plan)
			d.setQuota(owner, own, d.quotaReason(base, &in, steps))
			for i := range d.Plan[from:] {
				d.Plan[from+i].Observe = true
			}
		}
	}
	return base
}

// setQuota plans a quota, with the period that it is of unless that is everybody's.
func (d *Draft) setQuota(owner protocol.Feature, quota unit.Micros, why string) {
	d.Set(owner, plan.CPUQuota, plan.Int(quota), why)
	if p := d.period(); quota > 0 && p != unit.CFSPeriod && d.Takes(owner, plan.CPUQuota) {
		d.Set(owner, plan.CPUPeriod, plan.Int(p), "the kubelet's period, which the quota is of")
	}
}

// period is the target's.
func (d *Draft) period() unit.Micros {
	if p := unit.Micros(d.Period.Or(int64(unit.CFSPeriod))); p >= unit.MinPeriod && p <= unit.MaxPeriod {
		return p
	}
	return unit.CFSPeriod
}

// quotaOfPeriod is what a quota of CFSPeriod is in the target's period.
func (d *Draft) quotaOfPeriod(q unit.Micros) unit.Micros {
	p := d.period()
	if q <= 0 || p == unit.CFSPeriod {
		return q
	}
	q = max(q.OfPeriod(p), unit.MinQuota)
	if d.View.Kernel.Systemd {
		q = unit.UnitQuota(q, p) // of a period that is no multiple of 100 µs
	}
	return q
}

// PerCFSPeriod is what a quota of the target's period is in CFSPeriod, in which the loops reckon; unit.Unlimited stays.
func (d *Draft) PerCFSPeriod(q unit.Micros) unit.Micros { return q.PerCFSPeriod(d.period()) }

// compose applies the steps of the features in use.
func (d *Draft) compose(base unit.Micros, in *QuotaInput, use protocol.FeatureSet) (value unit.Micros, owner protocol.Feature, steps int) {
	value = base
	batch := in.HasBatch && use.Has(protocol.FeatureBatch)
	if batch && !in.Batch.CPUUnlimited && in.Batch.CPULimit.V > 0 {
		value, owner, steps = unit.QuotaFromMilli(unit.MilliCPU(in.Batch.CPULimit.V)), protocol.FeatureBatch, stepBatch
	}
	pinned := in.Pinned && use.Has(protocol.FeatureCPUSet)
	if value > 0 && !pinned && !in.NoNormalization && use.Has(protocol.FeatureNormalization) && d.normalised(batch) {
		value = max(d.View.Dynamic.Normalization.CeilDiv(value), unit.MinQuota)
		owner, steps = protocol.FeatureNormalization, steps|stepNormalization
	}
	if raised := in.Factor.Raise(value) + in.Plus; value > 0 && raised > value && !pinned && use.Has(protocol.FeatureBurst) {
		value, owner, steps = raised, protocol.FeatureBurst, steps|stepBurst
	}
	if pinned && value != unit.Unlimited {
		value, owner, steps = unit.Unlimited, protocol.FeatureCPUSet, steps|stepPinned
	}
	if value != unit.Unlimited && use.Has(protocol.FeatureBatch) && d.cfsSuppression() {
		value, owner, steps = unit.Unlimited, protocol.FeatureBatch, steps|stepSuppress
	}
	if most := unit.QuotaFromMilli(in.Cap); most > 0 && (value <= 0 || value > most) && use.Has(protocol.FeatureBatch) {
		value, owner, steps = most, protocol.FeatureBatch, steps|stepCap
	}
	if rounded := (value + systemdStep - 1) / systemdStep * systemdStep; value > 0 && steps != 0 && d.View.Kernel.Systemd && rounded != value {
		value, steps = rounded, steps|stepRounded
	}
	return value, owner, steps
}

// systemdStep is a hundredth of CFSPeriod, in which compose reckons.
const systemdStep = unit.CFSPeriod / 100

// normalised reports whether the node's ratio divides the quotas of this pod.
func (d *Draft) normalised(batch bool) bool {
	qos := d.Pod.Ask.QoS
	return d.View.Dynamic.Normalization > 100 && (batch || qos == protocol.QoSLS || qos == protocol.QoSNone)
}

// cfsSuppression reports whether the pod is a BE pod that is held down by one quota on its QoS directory. Where it stands counts, not
// what its label asks for.
func (d *Draft) cfsSuppression() bool {
	return d.View.Dynamic.BEQuota && d.Pod.Ask.QoS == protocol.QoSBE && d.Pod.KubeQoS == protocol.KubeBestEffort
}

// quotaReason tells the chain: "kubelet 400000, / 1.20 normalisation".
func (d *Draft) quotaReason(base unit.Micros, in *QuotaInput, steps int) string {
	if steps == stepPinned {
		return "owns its CPUs: no quota"
	}
	b := make([]byte, 0, 96)
	switch {
	case steps&stepBatch == 0:
		b = append(b, "kubelet "...)
		b = appendLimit(b, int64(base))
	default:
		b = append(b, in.Batch.name()...)
		b = append(b, "-cpu limit "...)
		b = strconv.AppendInt(b, in.Batch.CPULimit.V, 10)
		b = append(b, 'm')
	}
	if steps&stepNormalization != 0 {
		r := int64(d.View.Dynamic.Normalization)
		b = append(b, ", divided by ratio "...)
		b = strconv.AppendInt(b, r/100, 10)
		b = append(b, '.', byte('0'+r/10%10), byte('0'+r%10))
	}
	if steps&stepBurst != 0 {
		b = append(b, ", raised by burst"...)
	}
	if steps&stepRounded != 0 {
		b = append(b, ", rounded up to systemd's step"...)
	}
	if steps&stepPinned != 0 {
		b = append(b, ", owns its CPUs: no quota"...)
	}
	if steps&stepSuppress != 0 {
		b = append(b, ", the BE directory's quota bounds it"...)
	}
	if steps&stepCap != 0 {
		b = append(b, ", held down because it disturbs others"...)
	}
	return string(b)
}

// name is "batch" or "mid".
func (a *Amounts) name() string {
	if a.Mid {
		return "mid"
	}
	return "batch"
}

// appendLimit appends n, or "unlimited".
func appendLimit(b []byte, n int64) []byte {
	if n < 0 {
		return append(b, "unlimited"...)
	}
	return strconv.AppendInt(b, n, 10)
}

// Shares plans cpu.shares from the batch or mid request, milli × 1024 / 1000 within 2..262144, when it differs from the
// base. Example: batch-cpu request 500 gives 512.
func (d *Draft) Shares(base unit.Opt, a *Amounts) {
	if !a.CPURequest.Set || !d.Takes(protocol.FeatureBatch, plan.CPUShares) {
		return
	}
	shares := unit.SharesFromMilli(unit.MilliCPU(a.CPURequest.V))
	if base.Set && base.V == int64(shares) {
		return
	}
	d.Set(protocol.FeatureBatch, plan.CPUShares, plan.Int(shares), a.name()+"-cpu request "+strconv.FormatInt(a.CPURequest.V, 10)+"m")
}

// MemoryLimit returns the limit in force after batch if that is among the features in use, 0 for none, and a reason when
// batch decides it. A batch limit that is absent does not remove a Kubernetes limit.
func MemoryLimit(base unit.Opt, a *Amounts, hasBatch bool, use protocol.FeatureSet) (limit unit.Bytes, why string) {
	limit = unit.Bytes(max(base.V, 0))
	if !hasBatch || !use.Has(protocol.FeatureBatch) || a.MemoryUnlimited || a.MemoryLimit.V <= 0 {
		return limit, ""
	}
	return unit.Bytes(a.MemoryLimit.V), a.name() + "-memory limit"
}
