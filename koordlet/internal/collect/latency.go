// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"fmt"

	"github.com/koord-rt/koord-rt/model/sample"
)

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

// diskLatencies tells how long a wait of the tasks of pods for a disk took, in microseconds: with delay accounting
//
//	Σ over tasks of the time waited / how often
//
// else, as an estimate, the growth of "some" in the pod's IO pressure over its requests. Who has not waited, or asked for nothing, has
// no latency. Nothing is read here.
type diskLatencies struct{ tasks bool }

func newDiskLatency(m *machine) (collector, support) {
	c := diskLatencies{tasks: m.waits == nil}
	return c, m.standIn("IO pressure per request")
}

func (c diskLatencies) collect(t *tick) {
	for _, p := range t.pods {
		if !p.fresh || !t.due(&p.entry) {
			continue
		}
		if waited, times := c.pod(p); times > 0 {
			t.emit(p.subject, sample.DiskLatency, waited/times, p.at)
		}
	}
}

// pod is the time waited and how often, both per second.
func (c diskLatencies) pod(p *podEntry) (waited, times float64) {
	if c.tasks {
		return p.waited.disk, p.waited.diskWaits
	}
	stalled := p.stalled[ioPressure]
	if !stalled.known || !p.requests.known {
		return 0, 0
	}
	return stalled.value, p.requests.value
}

// standIn is what can be told where delay accounting is on, and by something instead where it is not.
func (m *machine) standIn(instead string) support {
	switch {
	case m.waits == nil:
		return support{}
	case m.pressure.no != "":
		return support{no: fmt.Sprintf("%v; %s cannot stand in: %s", m.waits, instead, m.pressure.no)}
	}
	less := fmt.Sprintf("%s stands in: %v (set kernel.task_delayacct=1 before containers start, then restart koordlet)", instead, m.waits)
	if m.pressure.less != "" {
		less += "; " + m.pressure.less
	}
	return support{less: less}
}
