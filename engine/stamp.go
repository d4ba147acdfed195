// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"sync"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// stamp is what a container's spec holds of ours. The reply carries the same as an annotation; the maps are built when
// somebody asks, which is after the reply, but where an update's answer is recorded before it.
type stamp struct {
	edge Edge
	mu   sync.Mutex
	// v, pl and c are what it is made of, nil when it is made.
	v    *node.View
	pl   plan.Plan
	c    *workload.Container
	made *protocol.Applied
	// held is what of it the runtime's record may hold, once it is made.
	held plan.Plan
}

func (g *Engine) markOf(v *node.View, pl plan.Plan, c *workload.Container) *stamp {
	return &stamp{edge: g.o.Edge, v: v, pl: pl, c: c}
}

// get is nil when the spec holds nothing of ours.
func (m *stamp) get() *protocol.Applied {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.v != nil {
		m.made, m.held = m.edge.Mark(m.v, m.pl, m.c), heldOf(m.v, m.pl, &m.c.Base)
		m.v, m.pl, m.c = nil, nil, nil
	}
	return m.made
}

// record is what of it the runtime's own record may hold.
func (m *stamp) record() plan.Plan {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.v != nil {
		return heldOf(m.v, m.pl, &m.c.Base)
	}
	return m.held
}

// heldOf is inRecord without what the kubelet has asked for itself: what a mark says of it (mark.Of), without its texts, of the View that the runtime
// was answered by.
func heldOf(v *node.View, pl plan.Plan, base *workload.Resources) (out plan.Plan) {
	for i := range pl {
		if s := &pl[i]; isRecorded(v, s) && !mark.Holds(base, s) {
			out = append(out, *s)
		}
	}
	return out
}
