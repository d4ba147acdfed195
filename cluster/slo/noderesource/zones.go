// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/koord-rt/koord-rt/api/protocol"
	topologyv1alpha1 "github.com/koord-rt/koord-rt/api/topology/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/kept"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// zoneBatch is what is lent out of one memory node.
type zoneBatch struct {
	id    int
	batch capacity.Amounts
}

// ofZones are the resources of a zone that are ours.
var ofZones = []string{protocol.ResourceBatchCPU, protocol.ResourceBatchMemory}

// zoneID is the memory node of a zone: the number in its name (node-1), else its place.
func zoneID(z *topologyv1alpha1.Zone, place int) int {
	if text, ok := strings.CutPrefix(z.Name, "node-"); ok {
		if id, err := strconv.Atoi(text); err == nil && id >= 0 {
			return id
		}
	}
	return place
}

// maxZones are as many memory nodes as a kernel can have (CONFIG_NODES_SHIFT of 10). The definition, which is not ours alone, has no bound, and
// what is looked up for each zone among all of them would let one node's account keep everybody's worker busy for minutes.
const maxZones = 1024

// zonesOf reads the memory nodes. As long as one of them does not tell its CPUs and memory nothing can be said of any.
func zonesOf(t *topologyv1alpha1.NodeResourceTopology) []capacity.Zone {
	if t == nil || len(t.Zones) > maxZones {
		return nil
	}
	var out []capacity.Zone
	for i := range t.Zones {
		z := &t.Zones[i]
		list := corev1.ResourceList{}
		for _, r := range z.Resources {
			list[corev1.ResourceName(r.Name)] = r.Capacity
		}
		amounts := kept.Amounts(list)
		if amounts.CPU == 0 && amounts.Memory == 0 {
			return nil
		}
		out = append(out, capacity.Zone{ID: zoneID(z, i), Capacity: amounts})
	}
	return out
}

// zonePatch is the merge patch that brings batch resources of the zones up to date, or takes them away; nil where the difference
// is not worth a write. A list is replaced as a whole, so the patch holds for the version that was read only; what others say
// of the zones stays.
func (d *decision) zonePatch() map[string]any {
	if d.in.Topology == nil || d.hold {
		return nil
	}
	var changes []capacity.Change
	zones := slices.Clone(d.in.Topology.Zones)
	for i := range zones {
		c, resources := zoneChanges(zones[i].Resources, d.zoneWants(zoneID(&zones[i], i)))
		zones[i].Resources = resources
		changes = append(changes, c...)
	}
	rule := capacity.Rule{Threshold: unit.Fraction(d.strategy.DiffThreshold), After: span(d.strategy.UpdateAfter)}
	if !rule.Due(changes, span(d.in.ZonesSince)) {
		return nil
	}
	return map[string]any{"metadata": map[string]any{"resourceVersion": d.in.Topology.ResourceVersion}, "zones": zones}
}

// zoneWants are the resources that a memory node should have, none where nothing is lent.
func (d *decision) zoneWants(id int) map[string]unit.Opt {
	i := slices.IndexFunc(d.zones, func(z zoneBatch) bool { return z.id == id })
	if i < 0 {
		return nil
	}
	b := d.zones[i].batch
	return map[string]unit.Opt{
		protocol.ResourceBatchCPU: unit.Some(int64(b.CPU)), protocol.ResourceBatchMemory: unit.Some(int64(b.Memory)),
	}
}

// zoneChanges brings the resources of one zone to what is wanted; have stays as it is.
func zoneChanges(have []topologyv1alpha1.ResourceInfo, want map[string]unit.Opt) ([]capacity.Change, []topologyv1alpha1.ResourceInfo) {
	var changes []capacity.Change
	out := slices.Clone(have)
	for _, name := range ofZones {
		to := want[name]
		is := func(r topologyv1alpha1.ResourceInfo) bool { return r.Name == name }
		var old unit.Opt
		i := slices.IndexFunc(out, is)
		if i >= 0 {
			old = unit.Some(out[i].Allocatable.Value())
			if out[i].Capacity.Cmp(out[i].Allocatable) != 0 || out[i].Available.Cmp(out[i].Allocatable) != 0 {
				old = unit.Opt{Set: !to.Set} // worth a write, whatever it says
			}
		}
		if old == to {
			continue
		}
		changes = append(changes, capacity.Change{Old: old, New: to})
		out = slices.DeleteFunc(out, is)
		if to.Set {
			q := *resource.NewQuantity(to.V, resource.DecimalSI)
			one := topologyv1alpha1.ResourceInfo{Name: name, Capacity: q, Allocatable: q, Available: q}
			out = slices.Insert(out, min(max(i, 0), len(out)), one)
			if i < 0 {
				slices.SortStableFunc(out, func(a, b topologyv1alpha1.ResourceInfo) int { return strings.Compare(a.Name, b.Name) })
			}
		}
	}
	return changes, out
}
