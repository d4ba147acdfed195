// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// shortage is what the kubelet says that a node is short of.
type shortage struct{ memory, disk, pids bool }

func short(n *corev1.Node) shortage {
	is := func(kind corev1.NodeConditionType) bool {
		return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
	}
	return shortage{memory: is(corev1.NodeMemoryPressure), disk: is(corev1.NodeDiskPressure), pids: is(corev1.NodePIDPressure)}
}

// weigh is the part of the usual that is lent out of the node now. What it was before stands in the node's annotation.
func (d *decision) weigh(node *capacity.Node, report *capacity.Report) unit.Percent {
	const key = protocol.AnnotationLendingWeight
	s, problems := d.strategy.Health()
	for _, p := range problems {
		d.problem(p.Error())
	}
	d.out.Weight = capacity.Sound()
	d.annotate[key] = ""
	if !s.Enable {
		return capacity.Whole
	}
	before, lack := d.weighed(), short(d.in.Node)
	signs := capacity.Signs{Now: instant(d.in.Now), Report: report, Seen: d.in.sighting(), Memory: lack.memory, Disk: lack.disk, PIDs: lack.pids}
	if d.out.Contradiction = capacity.Contradiction(node, report, unit.Percent(s.MarginPercent)); d.out.Contradiction != "" {
		signs.Contradicts = d.contradicts(&before, span(s.Contradicts))
	}
	policy := capacity.HealthStrategy{
		Stale: span(s.Stale), Degrade: span(d.strategy.Degrade), Margin: unit.Percent(s.MarginPercent), Contradicts: span(s.Contradicts),
		Contradiction: unit.Percent(s.ContradictionPercent), Memory: unit.Percent(s.MemoryPressurePercent),
		Disk: unit.Percent(s.DiskPressurePercent), PIDs: unit.Percent(s.PIDPressurePercent),
		Evictions: s.EvictionsPerHour, Recovery: span(s.Recovery),
	}
	after, again := policy.Weigh(before, signs)
	if again > 0 {
		d.again(later(again))
	}
	if d.out.Weight = after; after.Weight < capacity.Whole {
		d.annotate[key] = protocol.FormatLendingWeight(protocol.LendingWeight{
			Percent: int64(after.Weight), Reasons: after.Reasons, Since: int64(after.Since / unit.Second),
		})
	}
	return after.Weight
}

// contradicts is for how long reports have contradicted themselves. A node that lost weight by it before this process began, or that is
// recovering from it, has done so for as long as it takes.
func (d *decision) contradicts(before *capacity.Weighing, long unit.Micros) unit.Opt {
	if slices.Contains(before.Reasons, protocol.UnsoundContradiction) {
		return unit.Some(int64(long)) // whenever this process has first seen it
	}
	var lasted unit.Micros
	if since := d.in.Contradicts; !since.IsZero() {
		lasted = max(span(d.in.Now.Sub(since)), 0)
	}
	if lasted < long {
		d.again(later(long - lasted))
	}
	return unit.Some(int64(lasted))
}

// weighed is the weight that the node has.
func (d *decision) weighed() capacity.Weighing {
	const key = protocol.AnnotationLendingWeight
	text := d.in.Node.Annotations[key]
	if text == "" {
		return capacity.Sound()
	}
	w, err := protocol.ParseLendingWeight(text)
	if err != nil {
		d.problem("annotation " + key + ": " + err.Error() + "; the node counts as one that was sound")
		return capacity.Sound()
	}
	return capacity.Weighing{Weight: unit.Percent(w.Percent), Reasons: w.Reasons, Since: unit.Micros(w.Since) * unit.Second}
}

// again asks for another look, if it is the sooner one.
func (d *decision) again(after time.Duration) {
	if d.out.Again == 0 || after < d.out.Again {
		d.out.Again = after
	}
}

// later is a span from now, and a second more, so that it is over then.
func later(m unit.Micros) time.Duration { return time.Duration(m)*time.Microsecond + time.Second }
