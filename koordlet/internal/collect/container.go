// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

// containers measures CPU, throttling and memory of each container.
type containers struct{}

func newContainers(*machine) (collector, support) { return containers{}, support{} }

func (containers) collect(t *tick) {
	for _, p := range t.pods {
		for _, c := range p.containers {
			if t.read(c); c.fresh {
				t.emitUsage(c)
			}
		}
	}
}
