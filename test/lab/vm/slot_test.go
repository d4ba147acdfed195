// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vm

import "testing"

// Without a word a guest wants four CPUs, and one guest may always run.
func TestSlots(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		asked string
		cpus  int
		want  int // 0: refused
	}{
		{"", 1, 1}, {"", 2, 1}, {"", 7, 1}, {"", 8, 2}, {"1", 64, 1}, {"2", 2, 2}, {"0", 2, 0}, {"-1", 2, 0}, {"two", 2, 0},
	} {
		got, err := slots(c.asked, c.cpus)
		if got != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%q with %d CPUs: %d, %v; want %d", c.asked, c.cpus, got, err, c.want)
		}
	}
}
