// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	podpolicy "github.com/koord-rt/koord-rt/policy/pod"
)

// What the containers of a pod, or of the node, come to together.

// sums adds up what the containers of a pod ask of it.
func (r *registry) sums(sandbox string) podpolicy.Sums {
	r.mu.Lock()
	defer r.mu.Unlock()
	var s podpolicy.Sums
	for _, id := range r.members[sandbox] {
		if e := r.containers[id]; e.c.State != workload.StateStopped {
			s.Add(e.plan, e.c)
		}
	}
	return s
}

// limits adds up what the containers of a pod are limited to; a limit that one of them has not got is none of the pod's either.
func (r *registry) limits(sandbox string) (sum size) {
	r.mu.Lock()
	defer r.mu.Unlock()
	add := func(to *unit.Opt, limit unit.Opt, first bool) {
		if limit.V <= 0 || !first && !to.Set {
			*to = unit.Opt{}
			return
		}
		*to = unit.Some(to.V + limit.V)
	}
	first := true
	for _, id := range r.members[sandbox] {
		if c := r.containers[id].c; c.State != workload.StateStopped {
			add(&sum.quota, c.Base.Quota, first)
			add(&sum.memory, c.Base.MemoryLimit, first)
			first = false
		}
	}
	return sum
}

// claims are all claimed CPUs, together and by pod.
func (r *registry) claims() node.Claims {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out node.Claims
	for _, e := range r.containers {
		if e.c.State == workload.StateStopped || e.lse.Empty() && e.lsr.Empty() {
			continue
		}
		out.LSE, out.LSR = out.LSE.Union(e.lse), out.LSR.Union(e.lsr)
		if out.ByPod == nil {
			out.ByPod = map[string]node.PodClaim{}
		}
		if pod, ok := r.pods[e.sandbox]; ok {
			own := out.ByPod[pod.p.UID]
			own.LSE, own.LSR = own.LSE.Union(e.lse), own.LSR.Union(e.lsr)
			out.ByPod[pod.p.UID] = own
		}
	}
	return out
}
