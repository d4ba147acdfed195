// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

// hostApps measures CPU, throttling and memory of each host application.
type hostApps struct{}

func newHostApps(*machine) (collector, support) { return hostApps{}, support{} }

func (hostApps) collect(t *tick) {
	for _, a := range t.apps {
		if t.read(a, nil); a.fresh {
			t.emitUsage(a)
		}
	}
}
