// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package draft

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Amounts are the batch or mid resources of a container or pod.
type Amounts struct {
	// CPURequest and CPULimit are milli-CPUs, MemoryRequest and MemoryLimit bytes. A limit that is absent or not
	// positive is Unlimited; an absent request is not Set.
	CPURequest, CPULimit, MemoryRequest, MemoryLimit unit.Opt
	// CPUUnlimited and MemoryUnlimited: some container of the pod has no limit (pod level only).
	CPUUnlimited, MemoryUnlimited bool
	// Mid says that these are mid-* and not batch-* resources.
	Mid bool
}

// Extended is the pod's extended-resource-spec: the annotation's, else that of the node agent's pod cache.
func Extended(v *node.View, p *workload.Pod) map[string]protocol.ExtendedContainer {
	if p.Ask.HasExtended || len(p.Ask.Extended) > 0 {
		return p.Ask.Extended
	}
	return v.Pods[p.UID].Extended
}

// BatchOf returns the amounts of one container: batch-* (mid-* where it has no batch-*) of a pod labelled BE, mid-* of
// any other. Not ok for a container that the spec does not name or names without amounts: it is left alone.
func BatchOf(v *node.View, p *workload.Pod, container string) (Amounts, bool) {
	c, ok := Extended(v, p)[container]
	if !ok {
		return Amounts{}, false
	}
	return amounts(p, &c)
}

func amounts(p *workload.Pod, c *protocol.ExtendedContainer) (Amounts, bool) {
	if p.Ask.QoS == protocol.QoSBE {
		a := Amounts{
			CPURequest: opt(c.Requests.BatchCPU), CPULimit: opt(c.Limits.BatchCPU),
			MemoryRequest: opt(c.Requests.BatchMemory), MemoryLimit: opt(c.Limits.BatchMemory),
		}
		if a.any() {
			return a, true
		}
	}
	a := Amounts{
		CPURequest: opt(c.Requests.MidCPU), CPULimit: opt(c.Limits.MidCPU),
		MemoryRequest: opt(c.Requests.MidMemory), MemoryLimit: opt(c.Limits.MidMemory), Mid: true,
	}
	return a, a.any()
}

func (a *Amounts) any() bool {
	return a.CPURequest.Set || a.CPULimit.Set || a.MemoryRequest.Set || a.MemoryLimit.Set
}

func opt(n *int64) unit.Opt {
	if n == nil {
		return unit.Opt{}
	}
	return unit.Some(*n)
}

// BatchPod adds the amounts up over the containers of the spec. One container without a limit leaves the pod without one
// of ours; so does a container that only the pod cache knows and that has no Kubernetes limit (an injected sidecar), and
// a pod with Kubernetes requests that is not in the cache, because it may have such a container. The spec does not tell
// init containers apart, so all are added: the sum is never smaller than what runs at one time. An empty spec is not ok:
// it must never become a limit of 0. Kubernetes requests, known by the pod's own shares, are added to the request.
//
// Example: app 1000m/2Gi and sidecar 500m/1Gi give 1500m and 3Gi.
func BatchPod(v *node.View, p *workload.Pod) (Amounts, bool) {
	var sum Amounts
	spec := Extended(v, p)
	found := false
	for name := range spec {
		c := spec[name]
		a, ok := amounts(p, &c)
		if !ok {
			sum.addPlain(v.Pods[p.UID].Containers[name])
			continue
		}
		found = true
		sum.Mid = sum.Mid || a.Mid
		sum.CPURequest = plus(sum.CPURequest, a.CPURequest)
		sum.MemoryRequest = plus(sum.MemoryRequest, a.MemoryRequest)
		sum.CPULimit, sum.CPUUnlimited = plusLimit(sum.CPULimit, a.CPULimit, sum.CPUUnlimited)
		sum.MemoryLimit, sum.MemoryUnlimited = plusLimit(sum.MemoryLimit, a.MemoryLimit, sum.MemoryUnlimited)
	}
	if !found {
		return Amounts{}, false
	}
	cached := v.Pods[p.UID].Containers
	for name, c := range cached {
		if _, ok := spec[name]; !ok {
			sum.addPlain(c)
		}
	}
	if len(cached) == 0 && p.KubeQoS != protocol.KubeBestEffort {
		sum.CPUUnlimited, sum.MemoryUnlimited = true, true
	}
	if sum.CPURequest.Set {
		plain := unit.MilliFromShares(unit.Shares(p.Base.Shares.V))
		sum.CPURequest = plus(sum.CPURequest, unit.Some(int64(plain)))
	}
	return sum, true
}

// addPlain adds the limits of a container that has Kubernetes resources only, or nothing at all.
func (a *Amounts) addPlain(c node.ContainerSpec) {
	a.CPULimit, a.CPUUnlimited = plusLimit(a.CPULimit, unit.Some(int64(c.CPULimit)), a.CPUUnlimited)
	a.MemoryLimit, a.MemoryUnlimited = plusLimit(a.MemoryLimit, unit.Some(int64(c.MemoryLimit)), a.MemoryUnlimited)
}

// plus adds two amounts, saturating at 2^61: hostile annotations must not wrap around.
func plus(a, b unit.Opt) unit.Opt {
	const most = int64(1) << 61
	if !b.Set {
		return a
	}
	return unit.Some(min(min(max(a.V, 0), most)+min(max(b.V, 0), most), most))
}

func plusLimit(sum, limit unit.Opt, unlimited bool) (unit.Opt, bool) {
	if limit.V <= 0 {
		return sum, true
	}
	return plus(sum, limit), unlimited
}
