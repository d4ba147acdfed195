// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"runtime/metrics"
	"testing"

	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/engine/enginetest"
)

var sink []byte // keeps garbage on the heap

// Behind what events leave for later, garbage is collected, before the Go runtime would begin in the middle of an event.
func TestGarbageIsCollectedBehindJobs(t *testing.T) { // not parallel: it looks at the heap of the process
	m := newMachine(t)
	o := m.options(t, nil)
	o.Quiet = run.NewCollector().Quiet
	h, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- h.Run(ctx, func(ctx context.Context) { <-ctx.Done() }) }()
	asked := []metrics.Sample{{Name: "/gc/cycles/forced:gc-cycles"}}
	metrics.Read(asked)
	before := asked[0].Value.Uint64()
	enginetest.Eventually(t, "a collection", func() bool {
		for range 64 {
			sink = make([]byte, 4<<10)
		}
		if err := h.Engine.Stuck(); err != nil { // to ask makes a job
			t.Fatal(err)
		}
		metrics.Read(asked)
		return asked[0].Value.Uint64() >= before+2
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
