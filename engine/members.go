// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"cmp"
	"slices"

	"github.com/koord-rt/koord-rt/model/workload"
)

// Member is a pod of this node with its containers that have a cgroup.
type Member struct {
	Pod *workload.Pod
	// Containers are ordered by id.
	Containers []*workload.Container
}

// Members are the pods that run, ordered by UID and then by sandbox. What the pointers lead to is never written again.
func (g *Engine) Members() []Member { return g.reg.memberList() }

func (r *registry) memberList() []Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Member, 0, len(r.pods))
	for id := range r.pods {
		e := r.pods[id]
		if e.stopped {
			continue
		}
		m := Member{Pod: e.p}
		for _, c := range r.members[id] {
			if ctr := r.containers[c].c; ctr.Cgroup != "" && (ctr.State == workload.StateCreated || ctr.State == workload.StateRunning) {
				m.Containers = append(m.Containers, ctr)
			}
		}
		slices.SortFunc(m.Containers, func(a, b *workload.Container) int { return cmp.Compare(a.ID, b.ID) })
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Pod.UID, b.Pod.UID), cmp.Compare(a.Pod.ID, b.Pod.ID))
	})
	return out
}
