// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Sandbox is a pod as an event of the runtime names it.
type Sandbox struct {
	// ID is the sandbox's.
	ID string
	// Read makes the pod of what the event says. It is called when the pod is not known yet.
	Read func() *workload.Pod
}

// Arrival is a container as an event names it.
type Arrival struct {
	ID string
	// Read makes the container of what the event says; known is what the ledger and we know of it already, newest first:
	// the values that stood there before us.
	Read func(known ...*protocol.Applied) *workload.Container
	// Answered is when the runtime has answered the container's start, where an edge hears of that only; zero elsewhere.
	Answered time.Time
}

// Views are the engine's; edges read the present View of them.
func (g *Engine) Views() *Views { return g.views }

// SetDeadline bounds one guarded event.
func (g *Engine) SetDeadline(d time.Duration) { g.deadline.Store(int64(d)) }

// Joined tells the world whether the connection to the runtime stands.
func (g *Engine) Joined(ok bool) {
	defer g.stats.tell()
	g.m.SetConnected(ok)
	if ok {
		g.stats.connects.Add(1)
		g.stats.joined.Store(g.o.Now().UnixNano())
		return
	}
	g.stats.joined.Store(0)
}
