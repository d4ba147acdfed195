// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import (
	"fmt"
	"strconv"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// extendedWire is extended-resource-spec as written.
type extendedWire struct {
	Containers map[string]extendedContainerWire `json:"containers"`
}

type extendedContainerWire struct {
	Limits   map[string]strategy.Quantity `json:"limits,omitempty"`
	Requests map[string]strategy.Quantity `json:"requests,omitempty"`
}

// ParseExtendedResource reads extended-resource-spec: batch and mid resources by container. Quantities are rounded up
// to whole milli-cores and bytes ("1k" batch-cpu is one core). The deprecated names count when the current one is
// missing; both with different amounts are an error. Other resources are ignored. The map is never nil without error.
func ParseExtendedResource(s string) (map[string]ExtendedContainer, error) {
	var wire extendedWire
	if err := decode(s, &wire); err != nil {
		return nil, err
	}
	out := make(map[string]ExtendedContainer, len(wire.Containers))
	for _, name := range sortedKeys(wire.Containers) {
		if err := checkName(name, false); err != nil {
			return nil, err
		}
		limits, err := extendedFrom(wire.Containers[name].Limits)
		if err != nil {
			return nil, fmt.Errorf("container %s limits: %w", quote(name), err)
		}
		requests, err := extendedFrom(wire.Containers[name].Requests)
		if err != nil {
			return nil, fmt.Errorf("container %s requests: %w", quote(name), err)
		}
		out[name] = ExtendedContainer{Limits: limits, Requests: requests}
	}
	return out, nil
}

// extendedFrom picks the known resources.
func extendedFrom(m map[string]strategy.Quantity) (ExtendedResources, error) {
	var out ExtendedResources
	for _, field := range []struct {
		to               **int64
		name, deprecated string
	}{
		{&out.BatchCPU, ResourceBatchCPU, ResourceDeprecatedBatchCPU},
		{&out.BatchMemory, ResourceBatchMemory, ResourceDeprecatedBatchMemory},
		{&out.MidCPU, ResourceMidCPU, ""},
		{&out.MidMemory, ResourceMidMemory, ""},
	} {
		value, err := amount(m, field.name)
		if err != nil {
			return ExtendedResources{}, err
		}
		old, err := amount(m, field.deprecated)
		if err != nil {
			return ExtendedResources{}, err
		}
		switch {
		case value == nil:
			value = old
		case old != nil && *old != *value:
			return ExtendedResources{}, fmt.Errorf("%s and %s differ", field.name, field.deprecated)
		}
		*field.to = value
	}
	return out, nil
}

// amount is one quantity, nil when absent.
func amount(m map[string]strategy.Quantity, name string) (*int64, error) {
	q, ok := m[name]
	if !ok {
		return nil, nil
	}
	v, err := q.Value()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &v, nil
}

// FormatExtendedResource writes what [ParseExtendedResource] reads.
func FormatExtendedResource(m map[string]ExtendedContainer) string {
	wire := extendedWire{Containers: make(map[string]extendedContainerWire, len(m))}
	for name, c := range m {
		wire.Containers[name] = extendedContainerWire{Limits: extendedTo(c.Limits), Requests: extendedTo(c.Requests)}
	}
	return encode(wire)
}

// extendedTo writes the known resources.
func extendedTo(r ExtendedResources) map[string]strategy.Quantity {
	out := make(map[string]strategy.Quantity, 4)
	for _, field := range []struct {
		name  string
		value *int64
	}{
		{ResourceBatchCPU, r.BatchCPU}, {ResourceBatchMemory, r.BatchMemory},
		{ResourceMidCPU, r.MidCPU}, {ResourceMidMemory, r.MidMemory},
	} {
		if field.value != nil {
			out[field.name] = strategy.Quantity(strconv.FormatInt(*field.value, 10))
		}
	}
	return out
}

// resourceStatusWire is resource-status as written.
type resourceStatusWire struct {
	CPUSet            string             `json:"cpuset,omitempty"`
	NUMANodeResources []NUMANodeResource `json:"numaNodeResources,omitempty"`
}

// ParseResourceStatus reads resource-status: the scheduler's CPUs and NUMA nodes.
func ParseResourceStatus(s string) (ResourceStatus, error) {
	var wire resourceStatusWire
	if err := decode(s, &wire); err != nil {
		return ResourceStatus{}, err
	}
	out := ResourceStatus{CPUSet: wire.CPUSet}
	if wire.CPUSet != "" {
		if err := CheckCPUList(wire.CPUSet); err != nil {
			return ResourceStatus{}, err
		}
	}
	seen := make(map[int]bool, len(wire.NUMANodeResources))
	for _, n := range wire.NUMANodeResources {
		if n.Node < 0 || n.Node > MaxNUMANode || seen[n.Node] {
			return ResourceStatus{}, fmt.Errorf("NUMA node %d: want 0..%d, each once", n.Node, MaxNUMANode)
		}
		seen[n.Node] = true
		for _, name := range sortedKeys(n.Resources) {
			if err := checkAmount(name, n.Resources[name]); err != nil {
				return ResourceStatus{}, err
			}
		}
		if len(n.Resources) == 0 {
			n.Resources = nil
		}
		out.NUMANodes = append(out.NUMANodes, n.Node)
		out.NUMANodeResources = append(out.NUMANodeResources, n)
	}
	return out, nil
}

// checkAmount checks a resource's name and that its amount is there: JSON null leaves a quantity empty.
func checkAmount(name string, q strategy.Quantity) error {
	if err := checkName(name, false); err != nil {
		return err
	}
	if _, err := q.Value(); err != nil {
		return fmt.Errorf("%s: %w", quote(name), err)
	}
	return nil
}
