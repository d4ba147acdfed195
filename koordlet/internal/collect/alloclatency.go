// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import "github.com/koord-rt/koord-rt/model/sample"

// allocLatencies tells how long the tasks of pods waited for memory, in microseconds per second: with delay accounting as rundelay has
// found,
//
//	Σ over tasks of (direct reclaim + compaction + thrashing) / Δt
//
// else the growth of "some" in the memory pressure of its worst container, which counts tasks that wait at once as one. Nothing is
// read here.
type allocLatencies struct{ tasks bool }

func newAllocLatency(m *machine) (collector, support) {
	c := allocLatencies{tasks: m.waits == nil}
	return c, m.standIn("memory pressure of the worst container")
}

func (c allocLatencies) collect(t *tick) {
	for _, p := range t.pods {
		if !p.fresh || !t.due(&p.entry) {
			continue
		}
		if f := c.pod(p); f.known {
			t.emit(p.subject, sample.MemoryAllocLatency, f.value, p.at)
		}
	}
}

func (c allocLatencies) pod(p *podEntry) (worst figure) {
	if c.tasks {
		return figure{p.waited.memory, p.waited.known}
	}
	for _, e := range p.containers {
		if s := e.stalled[memoryPressure]; e.fresh && s.known && (!worst.known || s.value > worst.value) {
			worst = s
		}
	}
	return worst
}
