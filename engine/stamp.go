// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"sync"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// stamp is what a container's spec holds of ours. The reply carries the same as an annotation; the maps are built when
// somebody asks, which is after the reply, but where an update's answer is recorded before it.
type stamp struct {
	once sync.Once
	make func() *protocol.Applied
	made *protocol.Applied
}

func (g *Engine) markOf(v *node.View, pl plan.Plan, c *workload.Container) *stamp {
	return &stamp{make: func() *protocol.Applied { return g.o.Edge.Mark(v, pl, c) }}
}

// get is nil when the spec holds nothing of ours.
func (m *stamp) get() *protocol.Applied {
	if m == nil {
		return nil
	}
	m.once.Do(func() { m.made, m.make = m.make(), nil })
	return m.made
}
