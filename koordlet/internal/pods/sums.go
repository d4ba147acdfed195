// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pods

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/model/node"
)

// Requests is what the scheduler books for the pod (KEP-753, KEP-2837):
//
//	running = Σ regular + Σ sidecars
//	starting = max over init containers i of (request of i + Σ sidecars before i)
//	pod = max(running, starting), CPU and memory replaced by the pod's own where given, + overhead
//
// Example: app 500m, sidecar 100m, init 1000m behind the sidecar: max(600m, 1100m) = 1100m.
func (p *Pod) Requests() amount.Amounts {
	return p.total(func(r *Resources) amount.Amounts { return r.Requests }).Plus(p.Overhead)
}

// Limits adds up the limits that are finite, with the rule of [Pod.Requests]; overhead counts only when there is a limit.
func (p *Pod) Limits() amount.Amounts {
	sum := p.total(func(r *Resources) amount.Amounts { return r.Limits })
	var overhead amount.Amounts
	if sum.CPU > 0 {
		overhead.CPU = p.Overhead.CPU
	}
	if sum.Memory > 0 {
		overhead.Memory = p.Overhead.Memory
	}
	return sum.Plus(overhead)
}

// total applies the scheduler's rule to one half of the resources.
func (p *Pod) total(half func(*Resources) amount.Amounts) amount.Amounts {
	var running, sidecars, starting amount.Amounts
	for i := range p.Containers {
		c := &p.Containers[i]
		switch c.Kind {
		case Regular:
			running = running.Plus(half(&c.Resources))
		case Sidecar:
			sidecars = sidecars.Plus(half(&c.Resources))
			starting = starting.Max(sidecars)
		case Init:
			starting = starting.Max(sidecars.Plus(half(&c.Resources)))
		}
	}
	out := running.Plus(sidecars).Max(starting)
	if p.Own == nil {
		return out
	}
	own := half(p.Own)
	if own.CPU > 0 {
		out.CPU = own.CPU
	}
	if own.Memory > 0 {
		out.Memory = own.Memory
	}
	return out
}

// kubeQoS derives Kubernetes' class when the object does not tell: Guaranteed when every container has equal requests and
// limits of CPU and memory, BestEffort when nobody has any (k8s.io/component-helpers qos; pod-level resources decide where
// they are given).
func (p *Pod) kubeQoS() protocol.KubeQoS {
	if p.Own != nil {
		if some, every := guarantee(p.Own); some {
			return classOf(some, every)
		}
	}
	some, every := false, true
	for i := range p.Containers {
		if p.Containers[i].Kind == Ephemeral {
			continue
		}
		has, limited := guarantee(&p.Containers[i].Resources)
		some, every = some || has, every && limited
	}
	return classOf(some, every)
}

// guarantee says whether there is any CPU or memory at all, and whether both are limited to what is requested.
func guarantee(r *Resources) (some, every bool) {
	q, l := r.Requests, r.Limits
	some = q.CPU > 0 || q.Memory > 0 || l.CPU > 0 || l.Memory > 0
	every = l.CPU > 0 && l.Memory > 0 && (q.CPU == 0 || q.CPU == l.CPU) && (q.Memory == 0 || q.Memory == l.Memory)
	return some, every
}

func classOf(some, every bool) protocol.KubeQoS {
	switch {
	case !some:
		return protocol.KubeBestEffort
	case every:
		return protocol.KubeGuaranteed
	}
	return protocol.KubeBurstable
}

// Spec is the pod's entry in the cache that is handed to koord-nri and koord-runtime-proxy.
func (p *Pod) Spec() node.PodSpec {
	out := node.PodSpec{Containers: make(map[string]node.ContainerSpec, len(p.Containers))}
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Kind == Ephemeral {
			continue
		}
		out.Containers[c.Name] = node.ContainerSpec{
			CPURequest: c.Requests.CPU, CPULimit: c.Limits.CPU, MemoryRequest: c.Requests.Memory, MemoryLimit: c.Limits.Memory,
			Devices: c.Requests.Devices, Init: c.Kind == Init,
		}
		if !c.Requests.Extended() && !c.Limits.Extended() {
			continue
		}
		if out.Extended == nil {
			out.Extended = map[string]protocol.ExtendedContainer{}
		}
		out.Extended[c.Name] = protocol.ExtendedContainer{Requests: extended(c.Requests), Limits: extended(c.Limits)}
	}
	return out
}

// extended are the batch and mid amounts; none stays absent.
func extended(a amount.Amounts) protocol.ExtendedResources {
	return protocol.ExtendedResources{
		BatchCPU: given(a.BatchCPU), MidCPU: given(a.MidCPU), BatchMemory: given(a.BatchMemory), MidMemory: given(a.MidMemory),
	}
}

func given[T ~int64](v T) *int64 {
	if v == 0 {
		return nil
	}
	n := int64(v)
	return &n
}
