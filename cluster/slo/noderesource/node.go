// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cluster/internal/kept"
	"github.com/koord-rt/koord-rt/cluster/internal/quantity"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// whole is a resource that counts in whole numbers, absent where the list has none.
func whole(l corev1.ResourceList, name string) unit.Opt {
	q, ok := l[corev1.ResourceName(name)]
	if !ok {
		return unit.Opt{}
	}
	return unit.Some(q.Value())
}

// nodeOf reads a node. What cannot be read is passed over and said.
func nodeOf(n *corev1.Node) (out capacity.Node, problems []string) {
	out.Capacity = kept.Amounts(n.Status.Capacity)
	allocatable := kept.Amounts(n.Status.Allocatable)
	if text := n.Annotations[protocol.AnnotationRawAllocatable]; text != "" {
		raw := corev1.ResourceList{}
		if err := quantity.Unmarshal([]byte(text), &raw); err != nil {
			problems = append(problems, fmt.Sprintf("annotation %s: %v; what the kubelet keeps is taken from status.allocatable",
				protocol.AnnotationRawAllocatable, err))
		}
		if _, ok := raw[corev1.ResourceCPU]; ok {
			allocatable.CPU = kept.Milli(raw, corev1.ResourceCPU)
		}
		if _, ok := raw[corev1.ResourceMemory]; ok {
			allocatable.Memory = kept.Bytes(raw, corev1.ResourceMemory)
		}
	}
	out.Kubelet = out.Capacity.Minus(allocatable)
	kept, err := reservationOf(n.Annotations[protocol.AnnotationNodeReservation])
	if err != nil {
		problems = append(problems, fmt.Sprintf("annotation %s: %v; nothing is reserved by it", protocol.AnnotationNodeReservation, err))
	}
	out.Annotation = kept
	return out, problems
}

// reservationOf is what the annotation keeps: the CPUs that it names, or else the amount.
func reservationOf(text string) (capacity.Amounts, error) {
	cpus, err := protocol.ParseNodeReservation(text)
	if err != nil {
		return capacity.Amounts{}, err
	}
	memory, err := protocol.ParseReservedMemory(text)
	if err != nil {
		return capacity.Amounts{}, err
	}
	out := capacity.Amounts{CPU: unit.MilliCPU(cpus.MilliCPU), Memory: unit.Bytes(memory)}
	if cpus.CPUs != "" {
		set, err := topo.ParseCPUSet(cpus.CPUs)
		if err != nil {
			return capacity.Amounts{}, fmt.Errorf("reservedCPUs: %w", err)
		}
		out.CPU = unit.MilliCPU(1000 * set.Len())
	}
	return out, nil
}

// bookedOf is what other systems have booked of batch resources.
func bookedOf(text string) ([]capacity.Amounts, error) {
	list, err := protocol.ParseThirdParty(text)
	if err != nil {
		return nil, err
	}
	var out []capacity.Amounts
	for _, a := range list {
		if a.Priority == protocol.PriorityBatch {
			out = append(out, capacity.Amounts{CPU: unit.MilliCPU(a.Batch.MilliCPU), Memory: unit.Bytes(a.Batch.Memory)})
		}
	}
	return out, nil
}

// written is a whole number as text.
func written(v int64) string { return resource.NewQuantity(v, resource.DecimalSI).String() }

// instant is a time as the formulas take it.
func instant(t time.Time) unit.Micros { return unit.Micros(t.UnixMicro()) }

// span is a duration as the formulas take it.
func span(d time.Duration) unit.Micros { return unit.Micros(d.Microseconds()) }
