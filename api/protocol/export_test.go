// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// Writers of what only others write, so that tests can see that it reads back as it was.

// FormatDeviceAllocated writes what [ParseDeviceAllocated] reads.
func FormatDeviceAllocated(devices map[string][]DeviceAllocation) string {
	wire := make(map[string][]deviceWire, len(devices))
	for kind, list := range devices {
		for _, d := range list {
			w := deviceWire{Minor: d.Minor, ID: d.ID}
			for name, value := range d.Resources {
				if w.Resources == nil {
					w.Resources = make(map[string]strategy.Quantity, len(d.Resources))
				}
				w.Resources[name] = strategy.Quantity(strconv.FormatInt(value, 10))
			}
			if len(d.VFs) > 0 || d.GPUSharedResourceTemplate != "" {
				w.Extension = &deviceExtensionWire{VFs: d.VFs, Template: d.GPUSharedResourceTemplate}
			}
			wire[kind] = append(wire[kind], w)
		}
	}
	return encode(wire)
}

// FormatResourceStatus writes what [ParseResourceStatus] reads; NUMANodes is implied by NUMANodeResources.
func FormatResourceStatus(r ResourceStatus) string {
	return encode(resourceStatusWire{CPUSet: r.CPUSet, NUMANodeResources: r.NUMANodeResources})
}

// FormatPodLimits writes what [ParsePodLimits] reads.
func FormatPodLimits(l PodLimits) string {
	if len(l.Allowed) == 0 {
		return noLimits
	}
	items := slices.Clone(l.Allowed)
	for i, name := range items {
		if name == oomScoreAdjName {
			items[i] += ">=" + strconv.Itoa(l.OOMScoreAdjMin)
		}
	}
	return strings.Join(items, ",")
}

// FormatResctrl writes what [ParseResctrl] reads, per-cache entries by rising id.
func FormatResctrl(r Resctrl) string {
	var wire resctrlWire
	if r.LLC != nil || len(r.LLCPerCache) > 0 {
		wire.LLC = &schemataWire[rangeWire]{}
		if r.LLC != nil {
			wire.LLC.Schemata = &rangeWire{Range: []int64{r.LLC.Start, r.LLC.End}}
		}
		for _, id := range slices.Sorted(maps.Keys(r.LLCPerCache)) {
			part := r.LLCPerCache[id]
			wire.LLC.SchemataPerCache = append(wire.LLC.SchemataPerCache,
				rangeWire{CacheID: &id, Range: []int64{part.Start, part.End}})
		}
	}
	if r.MBPercent != nil || len(r.MBPerCache) > 0 {
		wire.MB = &schemataWire[percentWire]{}
		if r.MBPercent != nil {
			wire.MB.Schemata = &percentWire{Percent: r.MBPercent}
		}
		for _, id := range slices.Sorted(maps.Keys(r.MBPerCache)) {
			percent := r.MBPerCache[id]
			wire.MB.SchemataPerCache = append(wire.MB.SchemataPerCache, percentWire{CacheID: &id, Percent: &percent})
		}
	}
	return encode(wire)
}
