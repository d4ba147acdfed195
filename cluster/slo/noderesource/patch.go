// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// lent and ofDevices are the resources of a node's status that are ours, and ours alone.
var (
	lent      = []string{protocol.ResourceBatchCPU, protocol.ResourceBatchMemory, protocol.ResourceMidCPU, protocol.ResourceMidMemory}
	ofDevices = []string{
		protocol.ResourceGPU, protocol.ResourceGPUShared, protocol.ResourceGPUCore, protocol.ResourceGPUMemory,
		protocol.ResourceGPUMemoryRatio, protocol.ResourceRDMA, protocol.ResourceFPGA,
		protocol.ResourceHuaweiNPUCore, protocol.ResourceHuaweiNPUCPU, protocol.ResourceHuaweiNPUDVPP,
	}
)

// patch is the merge patch that gives the node what it should have, nil where the difference is not worth a write. When
// something is, everything is brought up to date with it. It holds for the node that was looked at, and for no other of its name.
func (d *decision) patch() map[string]any {
	resources, due := d.resourcePatch()
	meta, metaDue := d.metadataPatch()
	if !due && !metaDue {
		return nil
	}
	out := map[string]any{}
	if uid := d.in.Node.UID; uid != "" {
		meta["uid"] = string(uid) // of a node that is deleted and made anew nothing is known yet
	}
	if len(meta) > 0 {
		out["metadata"] = meta
	}
	if len(resources) > 0 {
		// The kubelet keeps what it does not know in both lists; the scheduler reads allocatable.
		out["status"] = map[string]any{"capacity": resources, "allocatable": resources}
	}
	return out
}

// resourcePatch are the resources that differ, and whether that is worth a write.
func (d *decision) resourcePatch() (patch map[string]any, due bool) {
	status := &d.in.Node.Status
	patch = map[string]any{}
	var changes []capacity.Change
	for _, name := range d.names() {
		want := d.resources[name]
		have, same := whole(status.Allocatable, name), whole(status.Capacity, name)
		if have == want && same == want {
			continue
		}
		patch[name] = nil
		if want.Set {
			patch[name] = written(want.V)
		}
		if slices.Contains(ofDevices, name) || have != same {
			due = true // a device is there or it is not
		}
		changes = append(changes, capacity.Change{Old: have, New: want})
	}
	origin := protocol.AnnotationOriginExtended
	have := d.in.Node.Annotations[origin]
	if text, ours := d.annotate[origin]; ours && text != have {
		changes = append(changes, originChanges(have, text)...)
	}
	rule := capacity.Rule{Threshold: unit.Fraction(d.strategy.DiffThreshold), After: span(d.strategy.UpdateAfter)}
	return patch, due || rule.Due(changes, span(d.in.Since))
}

// originChanges compares two values of the annotation; one that cannot be read counts as none.
func originChanges(have, want string) []capacity.Change {
	return []capacity.Change{
		{Old: originCPU(have), New: originCPU(want)}, {Old: originMemory(have), New: originMemory(want)},
	}
}

func originCPU(text string) unit.Opt {
	b, err := protocol.ParseOriginExtended(text)
	return unit.Opt{V: b.MilliCPU, Set: err == nil && text != ""}
}

func originMemory(text string) unit.Opt {
	b, err := protocol.ParseOriginExtended(text)
	return unit.Opt{V: b.Memory, Set: err == nil && text != ""}
}

// metadataPatch are the annotations and labels that differ, and whether that alone is worth a write: what goes with an amount
// waits for the amount.
func (d *decision) metadataPatch() (patch map[string]any, due bool) {
	patch = map[string]any{}
	for field, pair := range map[string][2]map[string]string{
		"annotations": {d.annotate, d.in.Node.Annotations}, "labels": {d.label, d.in.Node.Labels},
	} {
		diff := map[string]any{}
		for key, want := range pair[0] {
			have, is := pair[1][key]
			switch {
			case want == "" && is:
				diff[key] = nil
			case want != "" && want != have:
				diff[key] = want
			default:
				continue
			}
			due = due || key != protocol.AnnotationOriginExtended
		}
		if len(diff) > 0 {
			patch[field] = diff
		}
	}
	return patch, due
}
