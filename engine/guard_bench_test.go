// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
)

// BenchmarkGuard is what the guard itself costs an event that comes alone, which is what a runtime's events do: "memory"
// without and "handoff" with another goroutine; "cold" with the processor's caches overwritten before. Run it with
// GOMAXPROCS=1, too, as koord-nri runs. p50, p90 and p99 in µs; ns/op has the pause between the events in it.
func BenchmarkGuard(b *testing.B) {
	b.Run("memory/warm", func(b *testing.B) { benchGuard(b, true, nil) })
	b.Run("memory/cold", func(b *testing.B) { benchGuard(b, true, make([]byte, 16<<20)) })
	b.Run("handoff/warm", func(b *testing.B) { benchGuard(b, false, nil) })
	b.Run("handoff/cold", func(b *testing.B) { benchGuard(b, false, make([]byte, 16<<20)) })
}

func benchGuard(b *testing.B, memory bool, junk []byte) {
	g := newRig(b, 0).Engine
	call := engine.Call[int]{
		Event: metrics.EventStartContainer, Subject: "x", Memory: memory,
		Work: func(context.Context) (int, error) { return 1, nil },
	}
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		time.Sleep(2 * time.Millisecond) // until every thread sleeps
		for i := 0; i < len(junk); i += 64 {
			junk[i]++
		}
		start := time.Now()
		if _, err := engine.Guard(g, call); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	at := func(p float64) float64 { return float64(took[int(float64(len(took)-1)*p)].Nanoseconds()) / 1000 }
	b.ReportMetric(at(0.5), "p50-µs")
	b.ReportMetric(at(0.9), "p90-µs")
	b.ReportMetric(at(0.99), "p99-µs")
}
