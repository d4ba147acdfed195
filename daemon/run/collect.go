// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package run

import (
	"runtime"
	"runtime/metrics"
)

// Collector has garbage collected between events. Left to itself the Go runtime begins when an allocation asks for it, which is in the middle of
// a handler: whoever has one processor then stops for some 50 µs, helps to mark and yields to who marks, 200 to 300 µs in all.
type Collector struct{ read [3]metrics.Sample }

// NewCollector returns one that has collected nothing.
func NewCollector() *Collector {
	return &Collector{read: [...]metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/goal:bytes"},
	}}
}

// Quiet is called, by one goroutine at a time, when nothing is to be done, and returns when what was due is done: a millisecond or two for a heap of
// a few MiB. An event that comes meanwhile is served beside it, and waits at most while what is free is put in order.
func (c *Collector) Quiet() {
	metrics.Read(c.read[:])
	if due(c.read[0].Value.Uint64(), c.read[1].Value.Uint64(), c.read[2].Value.Uint64()) {
		runtime.GC()
	}
}

// least is how much garbage is worth a collection, in bytes: near the memory limit the goal is close, and each look would begin one.
const least = 512 << 10

// due reports that garbage may fill a third of the way from what the last collection has left (live) to where the next must be over (goal). The Go
// runtime begins at 95 % of it where little is allocated at a time, and counts what it has set apart for allocations, too: more than half is left
// for what events allocate between two looks. All are bytes. With GOGC=off the goal is beyond reach.
func due(live, held, goal uint64) bool {
	return held > live+least && goal > live && held-live > (goal-live)/3
}
