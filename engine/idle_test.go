// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"sync/atomic"
	"testing"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/model/workload"
)

// The quiet moment is after the jobs, and not while the runtime is at work on a call, which jobs disturb that have waited too long.
func TestIdle(t *testing.T) {
	t.Parallel()
	var idle atomic.Int64
	r := newRig(t, 0, func(o *engine.Options) { o.Idle = func() { idle.Add(1) } })
	var jobs atomic.Int64
	job := func() {
		want := jobs.Load() + 1
		r.RunPodLater(engine.Sandbox{ID: "s", Read: func() *workload.Pod { jobs.Add(1); panic("read") }})
		enginetest.Eventually(t, "job", func() bool { return jobs.Load() == want && r.Idle() })
	}
	enginetest.Eventually(t, "the first quiet moment", func() bool { return idle.Load() == 1 })
	answered := r.UnderWay("other")
	job()
	if n := idle.Load(); n != 1 {
		t.Errorf("%d quiet moments, the last while a call was under way", n)
	}
	answered()
	job()
	enginetest.Eventually(t, "a quiet moment", func() bool { return idle.Load() > 1 })
}
