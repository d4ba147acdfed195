// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package usage

// Descriptors is how many are held open, at most four.
func (c *Cgroup) Descriptors() int {
	n := 0
	for i := range c.held {
		if c.held[i].Open() {
			n++
		}
	}
	return n
}
