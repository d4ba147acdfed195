// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// systems computes what belongs to nobody:
//
//	system = max(node − Σ pods − Σ host applications, 0)
//
// It has no CPU in a tick in which one of them was read for the first time, and nothing before Follow.
type systems struct{}

func newSystem(*machine) (collector, support) { return systems{}, support{} }

func (systems) collect(t *tick) {
	if !t.told {
		return
	}
	m := &t.machine
	cores, memory, whole := t.system()
	if m.rated && whole {
		t.emit(sample.OfSystem(), sample.CPUUsage, cores, m.at)
	}
	if m.memoryOK {
		t.emit(sample.OfSystem(), sample.MemoryUsage, float64(memory), m.at)
	}
}

// system is the node less pods and host applications; whole is false when one of them has no CPU rate yet.
func (t *tick) system() (cores float64, memory unit.Bytes, whole bool) {
	cores, memory, whole = t.machine.cores, t.machine.used(), true
	take := func(e *entry) {
		if !e.fresh {
			return
		}
		cores -= e.cores
		memory -= e.counters.Memory.WithoutPageCache()
		whole = whole && e.rated
	}
	for _, p := range t.pods {
		take(&p.entry)
	}
	for _, a := range t.apps {
		take(a)
	}
	return max(cores, 0), max(memory, 0), whole
}
