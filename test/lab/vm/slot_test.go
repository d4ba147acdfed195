// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vm

import "testing"

// A guest wants four CPUs, and one guest may always run.
func TestSlots(t *testing.T) {
	t.Parallel()
	for cpus, want := range map[int]int{1: 1, 2: 1, 7: 1, 8: 2, 64: 16} {
		if got := slots(cpus); got != want {
			t.Errorf("%d CPUs: %d, want %d", cpus, got, want)
		}
	}
}
