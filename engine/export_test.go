// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import "context"

// Idle reports that no loop is at work and that the last question of Stuck has been answered.
func (g *Engine) Idle() bool {
	p := &g.pulses
	return p.jobs.since.Load()|p.repair.since.Load()|p.units.since.Load()|p.asked.Load() == 0
}

// Holds reports whether the quota of a pod's cgroup is open.
func (g *Engine) Holds(cgroup string) bool { return g.o.Live.parents.has(g.o.Live.CPUDir + cgroup) }

// Later has f run when the jobs before it are done.
func (g *Engine) Later(f func()) { g.jobs.add(func(context.Context) { f() }) }
