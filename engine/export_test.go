// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

// Idle reports that no loop is at work and that the last question of Stuck has been answered.
func (g *Engine) Idle() bool {
	p := &g.pulses
	return p.jobs.since.Load()|p.repair.since.Load()|p.units.since.Load()|p.asked.Load() == 0
}
