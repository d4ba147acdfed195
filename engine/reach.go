// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/policy/draft"
)

// maxPast bounds past: what was decided before them is decided anew.
const maxPast = 16

// succeeded is past of a View that follows this one and differs in the dynamic state alone.
func (p *published) succeeded() []*node.View {
	return append(slices.Clone(p.past[max(len(p.past)-maxPast+1, 0):]), p.view)
}

// reach is whom what has changed since an earlier generation bears on.
func (p *published) reach(gen uint64) node.Reach {
	if gen == p.view.Generation {
		return node.Reach{}
	}
	i := slices.IndexFunc(p.past, func(v *node.View) bool { return v.Generation == gen })
	if i < 0 {
		return node.Reach{Everybody: true}
	}
	return p.past[i].Dynamic.Reach(&p.view.Dynamic)
}

// reaches remembers whom the changes since a generation bear on: most containers were decided at the same one.
type reaches struct {
	of *published
	by map[uint64]node.Reach
}

func (r *reaches) since(gen uint64) node.Reach {
	out, ok := r.by[gen]
	if !ok {
		if r.by == nil {
			r.by = map[uint64]node.Reach{}
		}
		out = r.of.reach(gen)
		r.by[gen] = out
	}
	return out
}

func (r *reaches) container(it *item) bool {
	reach := r.since(it.gen)
	return reach.Everybody || reach.Pods[it.pod.p.UID] || reach.Containers[it.c.ID] ||
		reach.BestEffort && draft.PinClass(it.pod.p) == protocol.QoSBE
}

// pod leaves out what containers bring with them.
func (r *reaches) pod(e *podEntry) bool {
	reach := r.since(e.gen)
	return reach.Everybody || reach.Pods[e.p.UID]
}
