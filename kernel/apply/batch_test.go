// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// appends is a journal that remembers the size of each append and refuses records of one knob.
type appends struct {
	ledger
	sizes  []int
	refuse string
}

func (a *appends) Append(records ...journal.Record) error {
	a.sizes = append(a.sizes, len(records))
	for _, r := range records {
		if a.refuse != "" && r.Knob == a.refuse {
			return errors.New("too long")
		}
	}
	return a.ledger.Append(records...)
}

func batchMachine(t *testing.T, refuse plan.Knob) (*machine, *appends) {
	t.Helper()
	j := &appends{}
	if refuse != plan.NumKnobs {
		j.refuse = refuse.String()
	}
	return newMachine(t, "6.12", func(o *apply.Options) { o.Journal = j }), j
}

func TestIndependentWritesAreRecordedTogether(t *testing.T) {
	t.Parallel()
	m, j := batchMachine(t, plan.NumKnobs)
	m.apply(t, set(ctr, plan.MemoryMin, plan.Int(4096)), set(ctr, plan.MemoryLow, plan.Int(8192)), set(ctr, plan.CPUShares, plan.Int(512)))
	if len(j.sizes) != 1 || j.sizes[0] != 3 {
		t.Errorf("three independent values took appends of %v", j.sizes)
	}
	j.sizes = nil
	m.apply(t, set(ctr, plan.MemoryMin, plan.Int(4096)), set(ctr, plan.MemoryLow, plan.Int(8192)))
	if len(j.sizes) != 0 {
		t.Errorf("known values took appends of %v", j.sizes)
	}
}

// A burst is cut to the quota in force, so it cannot be recorded before the quota of the same plan is written.
func TestRelatedWritesWaitForEachOther(t *testing.T) {
	t.Parallel()
	m, j := batchMachine(t, plan.NumKnobs)
	results := m.apply(t, set(ctr, plan.CPUBurst, plan.Int(90000)), set(ctr, plan.CPUQuota, plan.Int(50000)), set(ctr, plan.MemoryMin, plan.Int(4096)))
	if got := m.Get(t, ctr, "cpu.max.burst"); got != "50000" || results[0].Note == "" {
		t.Errorf("burst %s, %+v", got, results[0])
	}
	if len(j.sizes) != 2 {
		t.Errorf("appends of %v, want the quota (and what else is free) before the burst", j.sizes)
	}
	for i, r := range j.all() {
		if r.Knob == plan.CPUBurst.String() && (i == 0 || strings.Join(r.Written, "") != "50000") {
			t.Errorf("record %d of the burst: %+v", i, r)
		}
	}
}

func TestOneRefusedRecordStopsOnlyItsValue(t *testing.T) {
	t.Parallel()
	m, _ := batchMachine(t, plan.MemoryLow)
	before := m.Get(t, ctr, "memory.low")
	results := m.Apply(t.Context(), plan.Plan{set(ctr, plan.MemoryMin, plan.Int(4096)), set(ctr, plan.MemoryLow, plan.Int(8192)), set(ctr, plan.CPUShares, plan.Int(512))}, 7)
	for i, want := range []apply.Outcome{apply.Written, apply.Failed, apply.Written} {
		if results[i].Outcome != want {
			t.Errorf("%s: %s, %v", results[i].Setting.Knob, results[i].Outcome, results[i].Err)
		}
	}
	if !errors.Is(results[1].Err, apply.ErrLedger) || m.Get(t, ctr, "memory.low") != before {
		t.Errorf("a value that was not recorded: %v, kernel has %s", results[1].Err, m.Get(t, ctr, "memory.low"))
	}
}
