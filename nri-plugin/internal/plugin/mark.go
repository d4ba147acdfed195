// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"sync"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// mark is what a container's spec holds of ours. The reply carries the same as an annotation; the maps are built when
// somebody asks, which is after the reply.
type mark struct {
	once sync.Once
	make func() *protocol.Applied
	made *protocol.Applied
}

func (p *Plugin) markOf(v *node.View, pl plan.Plan, c *workload.Container) *mark {
	return &mark{make: func() *protocol.Applied { return nri.Mark(v, pl, c, p.o.Version) }}
}

// get is nil when the spec holds nothing of ours.
func (m *mark) get() *protocol.Applied {
	if m == nil {
		return nil
	}
	m.once.Do(func() { m.made, m.make = m.make(), nil })
	return m.made
}
