// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package boottime

import (
	"testing"
	"time"
)

// It tells what the kernel does, does not go back, and takes nothing from the heap between two questions.
//
//nolint:paralleltest // counts allocations
func TestClock(t *testing.T) {
	var c Clock
	last := time.Duration(0)
	for begun := time.Now(); time.Since(begun) < trust+trust/10; {
		told := c.Now()
		if after := Now(); told < last || told > after {
			t.Fatalf("%s after %s, at %s", told, last, after)
		}
		last = told
	}
	if n := testing.AllocsPerRun(100, func() { c.Now() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	var unasked Clock
	unasked.last.Store(&reading{up: 10 * time.Hour, at: time.Now(), wall: time.Now().Round(0)})
	if told := unasked.Now(); told < 10*time.Hour || told > 10*time.Hour+trust {
		t.Errorf("the kernel is asked while a reading counts: %s", told)
	}
}

// A reading counts for a while, and no longer when the machine has slept, or the time of day was set, meanwhile.
func TestReadingHolds(t *testing.T) {
	t.Parallel()
	at := time.Now()
	for name, c := range map[string]struct {
		up    time.Duration
		later time.Duration
		slept time.Duration
		want  bool
	}{
		"at once": {time.Hour, 0, 0, true}, "soon": {time.Hour, trust - 1, 0, true}, "late": {time.Hour, trust, 0, false},
		"slept": {time.Hour, trust / 2, jump, false}, "set back": {time.Hour, trust / 2, -jump, false}, "runs fast": {time.Hour, trust / 2, jump - 1, true},
		"not told": {0, 0, 0, false},
	} {
		r := reading{up: c.up, at: at, wall: at.Round(0).Add(-c.slept)}
		if got := r.holds(at.Add(c.later)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
		if r.holds(time.Now()) {
			continue
		}
		var used Clock
		used.last.Store(&r)
		now := Now()
		if told := used.Now(); told < now || told > Now() {
			t.Errorf("%s: %s is told at %s", name, told, now)
		}
	}
}
