// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// bookedMark is memoryRequestUtilizationPercent of the node's strategy, as long as that is enabled. The NodeSLO goes before what
// the cluster says: it has the overrides of the node, and koordlet reclaims by it.
func (d *decision) bookedMark(who config.Node) unit.Opt {
	spec, _ := d.in.Config.NodeSLO(who)
	if d.in.SLO != nil {
		canonical, conflicts := d.in.SLO.Spec.Canonical()
		for _, c := range conflicts { // of an object from before the API server refused it
			d.problem("NodeSLO: " + c.Canonical + " and " + c.Seed + " differ; " + c.Canonical + " counts")
		}
		spec = canonical
	}
	t := spec.ResourceUsedThresholdWithBE
	if t == nil || t.Enable == nil || !*t.Enable {
		return unit.Opt{}
	}
	return given(t.MemoryRequestUtilizationPercent)
}

// full reports whether best-effort pods use so much of the memory that they have requested that batch-memory must not be raised.
func (d *decision) full(report *capacity.Report) bool {
	n := d.in.Node
	mark := d.bookedMark(config.Node{Name: n.Name, Labels: n.Labels, Annotations: n.Annotations})
	return mark.Set && capacity.BookedOf(d.in.Pods, report).Full(unit.Percent(mark.V))
}

// notRaised is memory as it is to be lent of a node that is full: not more than was. What was never lent has nothing to stay at.
//
// Example: 33 GB calculated, 30 GB lent: 30 GB; 28 GB calculated: 28 GB.
func notRaised(memory unit.Bytes, was unit.Opt) unit.Bytes {
	if !was.Set {
		return memory
	}
	return min(memory, max(unit.Bytes(was.V), 0))
}

// zoneHad is the batch-memory that a memory node has.
func (d *decision) zoneHad(id int) unit.Opt {
	for i := range d.in.Topology.Zones {
		z := &d.in.Topology.Zones[i]
		if zoneID(z, i) != id {
			continue
		}
		list := corev1.ResourceList{}
		for _, r := range z.Resources {
			list[corev1.ResourceName(r.Name)] = r.Allocatable
		}
		return whole(list, protocol.ResourceBatchMemory)
	}
	return unit.Opt{}
}
