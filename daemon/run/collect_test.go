// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package run

import (
	"runtime"
	"testing"
)

func TestOverdue(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, c := range []struct {
		now, live uint64
		want      bool
	}{
		{0, 0, false}, {mib - 1, 0, false}, {mib, 0, true},
		{3 * mib, 2 * mib, true}, {3*mib - 1, 2 * mib, false},
		{14 * mib, 12 * mib, false}, {15 * mib, 12 * mib, true},
		{mib, 2 * mib, false}, // what the last collection has found is being freed
	} {
		if got := overdue(c.now, c.live); got != c.want {
			t.Errorf("%d bytes after %d in use: %v", c.now, c.live, got)
		}
	}
}

// Garbage goes at once, and a heap without any is left alone.
func TestCollector(t *testing.T) { //nolint:paralleltest // it counts the process's collections
	if Collector(func(string) string { return "200" }) != nil {
		t.Error("the user's GOGC is not kept")
	}
	collect := Collector(func(string) string { return "" })
	collections := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	runtime.GC()
	before := collections()
	collect()
	if n := collections() - before; n != 0 {
		t.Errorf("%d collections without garbage", n)
	}
	for range 64 {
		sink = make([]byte, 1<<20)
	}
	sink = nil
	collect()
	if n := collections() - before; n != 1 {
		t.Errorf("%d collections of 64 MiB of garbage", n)
	}
}

var sink []byte
