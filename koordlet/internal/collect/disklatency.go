// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import "github.com/koord-rt/koord-rt/model/sample"

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
