// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"context"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
)

// A write that comes to its end after something else was wanted, which stood already, does not stand over that.
func TestLateWriteIsOvertaken(t *testing.T) {
	t.Parallel()
	w := &slow{hold: make(chan error)}
	m := newMachine(t, "6.12", func(o *apply.Options) { o.Writer = w })
	w.m = m
	m.Set(t, ctr, "memory.current", "1048576")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if r := m.Apply(ended, plan.Plan{set(ctr, plan.MemoryHigh, plan.Int(4096))}, 1); r[0].Outcome != apply.Pending {
		t.Fatalf("result %+v", r[0])
	}
	none := plan.Plan{set(ctr, plan.MemoryHigh, plan.Int(-1))}
	if r := m.apply(t, none...); r[0].Outcome != apply.Unchanged {
		t.Fatalf("result %+v", r[0])
	}
	close(w.hold)
	if err := m.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if bad := m.Verify(none); len(bad) != 0 {
		t.Errorf("not in force: %v", bad)
	}
	records := m.ledger.all()
	if last := records[len(records)-1]; last.Gen != 7 || last.Want != "-1" {
		t.Errorf("recorded as generation %d: %+v", last.Gen, last)
	}
}
