// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

// pods measures CPU, throttling and memory of each pod by its own cgroup, one reading that holds its containers and its sandbox.
type pods struct{}

func newPods(*machine) (collector, support) { return pods{}, support{} }

func (pods) collect(t *tick) {
	for _, e := range t.parents {
		t.readParent(e)
	}
	for _, p := range t.pods {
		was := p.at
		if t.read(&p.entry, p.above); p.fresh {
			t.emitUsage(&p.entry)
			if was == 0 { // what was before it was known is not of any interval
				was = p.at
			}
			p.own.begin(nanoseconds(p.at - was))
			p.own.add(p.stops())
		}
	}
}
