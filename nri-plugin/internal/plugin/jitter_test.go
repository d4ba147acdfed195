// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"testing"
	"time"
)

// The waits before reconnecting are spread over a quarter to each side: a rack of plugins does not return at once.
func TestJittered(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{time.Millisecond, 500 * time.Millisecond, 30 * time.Second} {
		least, most, sum := time.Duration(1<<62), time.Duration(0), time.Duration(0)
		const draws = 2000
		for range draws {
			j := jittered(d)
			least, most, sum = min(least, j), max(most, j), sum+j
		}
		if least < d*3/4 || most > d*5/4 {
			t.Errorf("%v: waits from %v to %v leave a quarter to each side", d, least, most)
		}
		if least > d*8/10 || most < d*12/10 {
			t.Errorf("%v: %d waits lie between %v and %v only", d, draws, least, most)
		}
		if mean := sum / draws; mean < d*97/100 || mean > d*103/100 {
			t.Errorf("%v: the mean is %v", d, mean)
		}
	}
	for _, d := range []time.Duration{0, -time.Second, 1} {
		if j := jittered(d); j < 0 || j > 1 {
			t.Errorf("jittered(%v) = %v", d, j)
		}
	}
}
