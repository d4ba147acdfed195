// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"context"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/journal"
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

// stuck holds back the writes of one value until goOn is closed.
type stuck struct {
	apply.Writer
	value string
	goOn  chan struct{}
}

func (s *stuck) Write(path, value string, nonblock bool) error {
	if nonblock && value == s.value {
		<-s.goOn
	}
	return s.Writer.Write(path, value, nonblock)
}

// A late write does not stand over what was given back meanwhile: that stands again, as a restore. What is wanted since, or somebody else
// has set, does so too.
func TestLateWriteIsGivenBack(t *testing.T) {
	t.Parallel()
	limits := []struct {
		kernel, usage, file string
		knob                plan.Knob
	}{
		{"6.12", "memory.current", "memory.high", plan.MemoryHigh},
		{"v1", "memory.usage_in_bytes", "memory.limit_in_bytes", plan.MemoryLimit},
	}
	for name, tc := range map[string]struct {
		before, since []int64 // of ours, in time: before the late write and after it
		foreign       string  // set by somebody else before the restore
		again         int64   // wanted after the restore
		want          string  // "" for the original
	}{
		"the original stands":      {},
		"a value of ours stands":   {before: []int64{1 << 22}},
		"and another was wanted":   {before: []int64{1 << 22}, since: []int64{1 << 23}},
		"several were wanted":      {since: []int64{1 << 23, 1 << 22, 1 << 23}},
		"it is wanted no more":     {since: []int64{-1}},
		"somebody else's":          {foreign: "12288", want: "12288"},
		"another is wanted since":  {before: []int64{1 << 22}, again: 1 << 24, want: "16777216"},
		"the original, wanted now": {before: []int64{1 << 22}, again: -1},
	} {
		for _, l := range limits {
			t.Run(name+" on "+l.kernel, func(t *testing.T) {
				t.Parallel()
				w := &stuck{value: "4096", goOn: make(chan struct{})}
				m := newMachine(t, l.kernel, func(o *apply.Options) { w.Writer, o.Writer = o.Writer, w })
				m.Set(t, ctr, l.usage, "1048576")
				before := m.Snapshot(t)
				setting := func(n int64) plan.Setting { return set(ctr, l.knob, plan.Int(n)) }
				for _, n := range tc.before {
					m.apply(t, setting(n))
				}
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				if r := m.Apply(ended, plan.Plan{setting(4096)}, 1); r[0].Outcome != apply.Pending {
					t.Fatalf("result %+v", r[0])
				}
				for _, n := range tc.since {
					m.apply(t, setting(n))
				}
				if tc.foreign != "" {
					m.Set(t, ctr, l.file, tc.foreign)
				}
				for _, s := range m.Restore(t.Context(), m.ledger.all(), false) {
					if s.Err != nil {
						t.Error(s.Err)
					}
				}
				if tc.again != 0 {
					m.apply(t, setting(tc.again))
				}
				n := len(m.ledger.all())
				close(w.goOn)
				if err := m.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := m.Get(t, ctr, l.file); tc.want != "" && got != tc.want {
					t.Errorf("%s = %s, want %s", l.file, got, tc.want)
				}
				if since := m.ledger.all()[n:]; len(since) == 0 || since[0].Via != journal.ViaRestore {
					t.Errorf("not recorded as a restore: %+v", since)
				}
				if tc.foreign != "" {
					return
				}
				if tc.want == "" {
					if diff := kerneltest.Diff(before, m.Snapshot(t)); diff != "" {
						t.Errorf("not byte-identical:\n%s", diff)
					}
				}
				restored(t, m, before) // what was wanted since has no late write for its original
			})
		}
	}
}
