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

// Members are the pods that run, ordered by UID and then by sandbox. Neither the list nor what its pointers lead to is ever
// written again.
func (g *Engine) Members() []Member {
	out, _ := g.Roster()
	return out
}

// Roster is Members with a number that grows whenever one of them may have changed: who asks every second has nothing to do
// while it stands.
func (g *Engine) Roster() (members []Member, generation uint64) { return g.reg.roster() }

func (r *registry) roster() ([]Member, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listed != r.generation || r.list == nil {
		r.list, r.listed = r.memberList(), r.generation
	}
	return r.list, r.generation
}

// memberList lists them anew. The lock is held.
func (r *registry) memberList() []Member {
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
