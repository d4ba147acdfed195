// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/model/sample"
)

// containers measures CPU, throttling and memory of each container, and what its limits are held against.
type containers struct{}

func newContainers(*machine) (collector, support) { return containers{}, support{} }

func (containers) collect(t *tick) {
	for _, p := range t.pods {
		for _, c := range p.containers {
			if t.read(c, &p.entry); !c.fresh {
				continue
			}
			t.emitUsage(c)
			p.own.add(c.stops())
			if c.counters.Have.Has(usage.MemoryCurrent) {
				t.emit(c.subject, sample.MemoryCharged, float64(c.counters.Current), c.at)
			}
		}
	}
}
