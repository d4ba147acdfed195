// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"strings"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Usage is what a pod and its node use at one moment, by the newest samples.
type Usage struct {
	CPU, NodeCPU       unit.Measured[unit.MilliCPU]
	Memory, NodeMemory unit.Measured[unit.Bytes]
}

// Release is what the end of a pod has brought, beside what was promised when it was chosen. The node's figures show it as far
// as nobody else has grown or shrunk meanwhile.
type Release struct {
	// Before is when it was sent, After when it was gone, or stopped: the pod has no use then, or what its sandbox still has.
	Before, After Usage
}

// Text compares what was promised with what came, for the audit: "promised 8 GiB, its use fell by 8.1 GiB, the node's went from
// 104 GiB to 96 GiB". What was promised of requests is free with the pod's end, whatever it has used.
func (r *Release) Text(e *evict.Eviction) string {
	var parts []string
	if e.Memory > 0 {
		parts = append(parts, released(figure.Bytes, e.Memory, freed(r.Before.Memory, r.After.Memory), r.Before.NodeMemory, r.After.NodeMemory))
	}
	if e.CPU > 0 {
		parts = append(parts, released(figure.CPUs, e.CPU, freed(r.Before.CPU, r.After.CPU), r.Before.NodeCPU, r.After.NodeCPU))
	}
	return strings.Join(parts, "; ")
}

// freed is what a pod had and has no more; what is not measured afterwards is gone.
func freed[T ~int64](before, after unit.Measured[T]) unit.Measured[T] {
	if before.OK && after.OK {
		before.V = max(before.V-after.V, 0)
	}
	return before
}

func released[T ~int64](text func(T) string, promised T, freed, before, after unit.Measured[T]) string {
	out := "promised " + text(promised)
	if freed.OK {
		out += ", its use fell by " + text(freed.V)
	} else {
		out += ", its use was not measured"
	}
	if before.OK && after.OK {
		out += ", the node's went from " + text(before.V) + " to " + text(after.V)
	}
	return out
}
