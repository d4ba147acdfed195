// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package run

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestDue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		live, held, goal uint64
		want             bool
	}{
		"a third of the way":                    {2 << 20, 3 << 20, 5 << 20, false},
		"more than a third":                     {2 << 20, 3<<20 + 1, 5 << 20, true},
		"less is held than was found alive":     {2 << 20, 1 << 20, 4 << 20, false},
		"the memory limit leaves little":        {40 << 20, 40<<20 + 512<<10, 41 << 20, false},
		"and more is garbage":                   {40 << 20, 40<<20 + 512<<10 + 1, 41 << 20, true},
		"no collection yet":                     {0, 3 << 20, 4 << 20, true},
		"the memory limit leaves no way":        {4 << 20, 5 << 20, 4 << 20, false},
		"GOGC=off":                              {2 << 20, 40 << 20, math.MaxUint64, false},
		"GOGC=off, and nothing has been marked": {0, 40 << 20, math.MaxUint64, false},
	} {
		if got := due(tc.live, tc.held, tc.goal); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Garbage that is made between quiet moments is collected in them, and never otherwise; where there is none, nothing is.
func TestCollectorQuiet(t *testing.T) { // not parallel: it looks at the heap of the process
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	c := NewCollector()
	c.Quiet()
	var before, after debug.GCStats
	debug.ReadGCStats(&before)
	for range 100 {
		c.Quiet()
	}
	debug.ReadGCStats(&after)
	if n := after.NumGC - before.NumGC; n > 1 { // what the test itself holds
		t.Errorf("%d collections of nothing", n)
	}
	begin := collected()
	for range 64 {
		litter()
		c.Quiet()
	}
	end := collected()
	if end.forced-begin.forced < 2 || end.automatic != begin.automatic {
		t.Errorf("of 16 MiB of garbage: %d collections in quiet moments, %d others", end.forced-begin.forced, end.automatic-begin.automatic)
	}
}

type collections struct{ forced, automatic uint64 }

func collected() collections {
	s := []metrics.Sample{{Name: "/gc/cycles/forced:gc-cycles"}, {Name: "/gc/cycles/automatic:gc-cycles"}}
	metrics.Read(s)
	return collections{s[0].Value.Uint64(), s[1].Value.Uint64()}
}

var sink []byte // keeps litter on the heap

// litter leaves 256 KiB behind.
func litter() {
	for range 64 {
		sink = make([]byte, 4<<10)
	}
	sink = nil
}
