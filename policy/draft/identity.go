// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package draft

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Identity is how the CPU scheduler shall see a pod.
type Identity struct {
	// Bvt is the group identity when HasBvt; only kernels with the file carry it.
	Bvt    int64
	HasBvt bool
	// Idle says that the pod shall run only where nobody else wants to.
	Idle bool
	// Explicit says that the class asks for schedIdle 1 itself.
	Explicit bool
	Why      string
}

// Identity translates the class' cpuQOS for this kernel. Kernels with bvt get the value itself. Elsewhere a negative
// value, or schedIdle 1, means idle scheduling; values of 0 and more need nothing, because the weight already tells
// latency-sensitive pods apart. With cpuPolicy coreSched only schedIdle counts (upstream).
func (d *Draft) Identity() (id Identity, ok bool) {
	if !d.Plans(protocol.FeatureIdentity) {
		return id, false
	}
	q, why, ok := CPUQOS(d.View, d.Pod)
	if !ok {
		return id, false
	}
	return d.identityOf(&q, why), true
}

func (d *Draft) identityOf(q *strategy.CPUQOS, why string) Identity {
	id := Identity{Bvt: min(max(Num(q.GroupIdentity), -1), 2), Why: why}
	grouped := Str(d.View.Strategy.Policy().CPUPolicy) != strategy.CPUPolicyCoreSched
	id.HasBvt = grouped && d.Takes(protocol.FeatureIdentity, plan.CPUBvt)
	id.Explicit = Num(q.SchedIdle) == 1
	id.Idle = id.Explicit || grouped && !id.HasBvt && id.Bvt < 0
	return id
}

// BesideIdle reports whether pods of class BE get cpu.idle on this node, so that a pod of another class has them for neighbours.
func (d *Draft) BesideIdle() bool {
	q := d.View.Strategy.ClassFor(protocol.QoSBE.String()).CPUQOS
	return On(q.Enable) && d.Takes(protocol.FeatureIdentity, plan.CPUIdle) && d.identityOf(q, "").Idle
}
