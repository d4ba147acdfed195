// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
)

// refusing is a kernel that takes no memory.high.
type refusing struct{ apply.Writer }

func (r refusing) Write(path, value string, nonblock bool) error {
	if value == "1048576" {
		return unix.EINVAL
	}
	return r.Writer.Write(path, value, nonblock)
}

// TestTook: what was written, or tried in vain, took some time; what stood already, or was never tried, took none.
func TestTook(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	m := newMachine(t, "6.12", func(o *apply.Options) {
		o.Writer = refusing{o.Writer}
		o.Now = func() time.Time { return time.Unix(clock.Add(1), 0).UTC() }
	})
	p := plan.Plan{
		set(pod, plan.CPUShares, plan.Int(1024)), set(ctr, plan.MemoryLow, plan.Int(0)), set(ctr, plan.MemoryHigh, plan.Int(1<<20)),
		set("/kubepods/burstable/podX/gone", plan.CPUShares, plan.Int(1024)),
	}
	for i, r := range m.Apply(t.Context(), p, 7) {
		want := []apply.Outcome{apply.Written, apply.Unchanged, apply.Failed, apply.Gone}[i]
		tried := want == apply.Written || want == apply.Failed
		if r.Outcome != want || (r.Took > 0) != tried || (want == apply.Failed) != errors.Is(r.Err, unix.EINVAL) {
			t.Errorf("%s: %s in %v, %v", &r.Setting, r.Outcome, r.Took, r.Err)
		}
	}
}
