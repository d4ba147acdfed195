// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package run

import (
	"runtime"
	"runtime/metrics"
)

// Between two collections the heap may grow by a part of what is in use, and by leastGrowth at least: a collection costs milliseconds.
const (
	leastGrowth  = 1 << 20
	growthDivide = 4
)

// Collector returns what a program that answers calls is to call when nobody waits for it: it collects garbage if there is enough of it.
// Left to itself, the Go runtime does so when memory is asked for, which is in the middle of an answer, and that takes some milliseconds
// longer then. A quiet moment costs nobody anything, and the heap stays smaller besides. It is nil where the user has set GOGC, whose
// word is then kept. The function is for one goroutine.
func Collector(getenv func(string) string) func() {
	if getenv("GOGC") != "" {
		return nil
	}
	now := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"}}
	return func() {
		metrics.Read(now)
		if overdue(now[0].Value.Uint64(), now[1].Value.Uint64()) {
			runtime.GC()
		}
	}
}

// overdue judges the bytes of the heap now against those that the last collection found in use.
func overdue(now, live uint64) bool { return now >= live+max(leastGrowth, live/growthDivide) }
