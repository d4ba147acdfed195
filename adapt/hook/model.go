// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hook

import (
	"maps"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// PodOf names a pod; its attempt is not in the model.
func PodOf(p *workload.Pod) Pod { return Pod{Name: p.Name, UID: p.UID, Namespace: p.Namespace} }

// ContainerOf names a container; its attempt is not in the model.
func ContainerOf(c *workload.Container) Container { return Container{Name: c.Name, ID: c.ID} }

// ResourcesOf renders a resource block of the model: what the kubelet asked, where the CRI message is not at hand (a
// container that was there before the proxy). Huge pages and swap are not in the model. An unlimited memory limit is
// "not specified", as in CRI.
func ResourcesOf(r *workload.Resources) *Resources {
	memory := r.MemoryLimit.Or(0)
	if memory == unit.Unlimited {
		memory = 0
	}
	return &Resources{
		Period: r.Period.Or(0), Quota: r.Quota.Or(0), Shares: r.Shares.Or(0), Memory: memory, OOMScoreAdj: r.OOMScoreAdj.Or(0),
		CPUs: r.CPUs, Mems: r.Mems, Unified: maps.Clone(r.Unified),
	}
}
