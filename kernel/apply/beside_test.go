// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// clobbering is a systemd that writes what it knows of memory.oom.group with every property.
type clobbering struct {
	units
	m *machine
	t *testing.T
	// before and meanwhile happen before it has written, and after that and before its reply; both may be nil. late: it does not write yet.
	before, meanwhile func()
	late              bool
}

func (c *clobbering) Set(ctx context.Context, cgroup string, settings []plan.Setting) error {
	if c.before != nil {
		c.before()
	}
	if c.m.Exists(cgroup) && !c.late {
		c.m.Tree.Set(c.t, cgroup, "memory.oom.group", "0")
	}
	if c.meanwhile != nil {
		c.meanwhile()
	}
	return c.units.Set(ctx, cgroup, settings)
}

func newClobbering(t *testing.T) (*machine, *clobbering) {
	t.Helper()
	c := &clobbering{units: units{calls: map[string]int{}}, t: t}
	c.m = newMachine(t, "6.12", func(o *apply.Options) { o.Units = c })
	return c.m, c
}

// told tells systemd of a weight.
func (c *clobbering) told(m *machine, want apply.Outcome) {
	c.t.Helper()
	weight := plan.Plan{set(ctr, plan.CPUShares, plan.Int(2))}
	if r := m.SyncUnits(c.t.Context(), weight, 1); r[0].Outcome != want {
		c.t.Errorf("outcome %s, %v, want %s", r[0].Outcome, r[0].Err, want)
	}
}

func (c *clobbering) stands(want, when string) {
	c.t.Helper()
	if got := c.m.Get(c.t, ctr, "memory.oom.group"); got != want {
		c.t.Errorf("%s: memory.oom.group is %s, want %s; ledger %q", when, got, want, c.m.ledger.lines(0))
	}
}

const (
	kept  = "beside memory.oom.group 1→0"
	share = "systemd cpu.shares →"
)

// Whatever stands in memory.oom.group when a property is set stands there afterwards, and is recorded once before that.
func TestBesideProperties(t *testing.T) {
	t.Parallel()
	m, systemd := newClobbering(t)
	systemd.told(m, apply.Written)
	same(t, m.ledger.lines(0), share) // nothing to lose

	m.Tree.Set(t, ctr, "memory.oom.group", "1")
	systemd.meanwhile = func() {
		if lines := m.ledger.lines(0); !slices.Contains(lines, kept) {
			t.Errorf("systemd is told before it is recorded: %q", lines)
		}
	}
	for range 2 {
		systemd.told(m, apply.Written)
		systemd.stands("1", "a property")
	}
	systemd.err = errors.New("it has written and says no")
	systemd.told(m, apply.Failed)
	systemd.stands("1", "a refused property")
	systemd.err = nil
	same(t, m.ledger.lines(1), kept, share, share)

	// A systemd that has not written in time does later. The next call puts that back.
	systemd.err, systemd.late = context.DeadlineExceeded, true
	systemd.told(m, apply.Failed)
	m.Tree.Set(t, ctr, "memory.oom.group", "0")
	systemd.err, systemd.late = nil, false
	systemd.told(m, apply.Written)
	systemd.stands("1", "a late systemd")

	// Somebody else's 0 is no systemd's.
	m.Tree.Set(t, ctr, "memory.oom.group", "0")
	systemd.told(m, apply.Written)
	systemd.stands("0", "a hand")
	same(t, m.ledger.lines(4), share, share)
}

// A value of ours that comes meanwhile is the newer one, whether systemd writes over it or before it.
func TestBesideIsNewer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stood  string
		values []int64
		want   string
	}{
		"a first 1":    {"0", []int64{1}, "1"},
		"another 0":    {"1", []int64{1, 0}, "0"},
		"the same":     {"1", nil, "1"},
		"1 once again": {"1", []int64{0, 1}, "1"},
	} {
		for _, before := range []bool{true, false} {
			m, systemd := newClobbering(t)
			m.Tree.Set(t, ctr, "memory.oom.group", c.stood)
			writes := func() {
				for _, n := range c.values {
					for _, r := range m.apply(t, set(ctr, plan.MemoryOOMGroup, plan.Int(n))) {
						if r.Strayed {
							t.Errorf("%s: found %s, which is told as somebody else's", name, r.Before)
						}
					}
				}
			}
			if before {
				systemd.before = writes
			} else {
				systemd.meanwhile = writes
			}
			systemd.told(m, apply.Written)
			systemd.stands(c.want, name)
		}
	}
}

// What cannot be recorded is not risked, and a container may end meanwhile.
func TestBesideRefused(t *testing.T) {
	t.Parallel()
	m, systemd := newClobbering(t)
	m.Tree.Set(t, ctr, "memory.oom.group", "1")
	weight := plan.Plan{set(ctr, plan.CPUShares, plan.Int(2))}
	systemd.meanwhile = func() { t.Error("systemd was told") }
	m.ledger.err = errors.New("disk full")
	if r := m.SyncUnits(t.Context(), weight, 1); r[0].Outcome != apply.Failed || !errors.Is(r[0].Err, apply.ErrLedger) {
		t.Errorf("outcome %s, %v", r[0].Outcome, r[0].Err)
	}
	m.ledger.err = nil
	systemd.meanwhile = func() { m.Rmdir(t, ctr) }
	if r := m.SyncUnits(t.Context(), weight, 1); r[0].Err != nil {
		t.Errorf("a container that ends meanwhile: %v", r[0].Err)
	}
}

// Whoever takes over from an Applier that has not put systemd's value back does, and does not take it for somebody's; what has been
// recorded is not recorded again.
func TestInheritBeside(t *testing.T) {
	t.Parallel()
	m, systemd := newClobbering(t)
	m.Tree.Set(t, ctr, "memory.oom.group", "1")
	systemd.err, systemd.late = context.DeadlineExceeded, true
	systemd.told(m, apply.Failed)
	m.Tree.Set(t, ctr, "memory.oom.group", "0")
	systemd.err, systemd.late = nil, false
	next := m.later(t, func(o *apply.Options) { o.Units = systemd })
	next.Inherit(m.Applier)
	for range 2 {
		systemd.told(next, apply.Written)
		systemd.stands("1", "an heir")
	}
	same(t, m.ledger.lines(0), kept, share, share)
}

// killed does something and forgets all that came after systemd had written: as if we had ended then.
func (c *clobbering) killed(do func()) {
	n := -1
	c.meanwhile = func() { n = len(c.m.ledger.all()) }
	do()
	c.meanwhile = nil
	if n < 0 {
		c.t.Fatal("systemd was not told")
	}
	c.m.ledger.records = c.m.ledger.records[:n]
	c.m.Tree.Set(c.t, ctr, "memory.oom.group", "0")
}

// Killed while systemd's value stands, we leave a ledger that a restore brings the kubelet's value back from: also where ours was the same,
// where another life has begun, and where the restore is killed at its own change of a property. Ours is taken back.
func TestRestoreBeside(t *testing.T) {
	t.Parallel()
	group := func(n int64) plan.Setting { return set(ctr, plan.MemoryOOMGroup, plan.Int(n)) }
	for name, c := range map[string]struct {
		kubelet string
		ours    []int64
	}{
		"nothing of ours": {"1", nil}, "nothing at all": {"0", nil}, "ours is the same": {"1", []int64{1}}, "ours": {"0", []int64{1}},
		"ours is none": {"1", []int64{0}}, "ours was none": {"1", []int64{0, 1}}, "given back": {"0", []int64{1, 0}},
	} {
		for _, dies := range []string{"nowhere", "agent", "both"} {
			t.Run(name+", killed "+dies, func(t *testing.T) {
				t.Parallel()
				m, systemd := newClobbering(t)
				m.Tree.Set(t, ctr, "memory.oom.group", c.kubelet)
				m.apply(t, set(ctr, plan.CPUShares, plan.Int(2)))
				for _, n := range c.ours {
					m.apply(t, group(n))
				}
				restore := func() {
					next := m.later(t, func(o *apply.Options) { o.Units = systemd })
					for _, s := range next.Restore(t.Context(), m.ledger.all(), false) {
						if s.Err != nil {
							t.Errorf("%s of %s: %v", s.Knob, s.Target, s.Err)
						}
					}
				}
				tell := func() { systemd.told(m, apply.Written) }
				if dies != "nowhere" {
					systemd.killed(tell)
				} else {
					tell()
				}
				if dies == "both" {
					systemd.killed(restore)
				}
				for range 2 {
					restore()
					systemd.stands(c.kubelet, "after a restore")
				}
			})
		}
	}
}

// What systemd has written over is told to the runtime as well, whose record has ours.
func TestRestoreBesideTellsTheRuntime(t *testing.T) {
	t.Parallel()
	m, systemd := newClobbering(t)
	m.Tree.Set(t, ctr, "memory.oom.group", "1")
	took := journal.Record{Boot: kerneltest.BootID, Target: targetOf(ctr), Knob: plan.MemoryOOMGroup.String(), Want: "1", Via: journal.ViaRuntime}
	if err := m.ledger.Append(took); err != nil {
		t.Fatal(err)
	}
	m.apply(t, set(ctr, plan.CPUShares, plan.Int(2)))
	systemd.killed(func() { systemd.told(m, apply.Written) })
	systemd.stands("0", "killed before it was put back")
	found := false
	for _, s := range m.later(t, func(o *apply.Options) { o.Units = systemd }).Restore(t.Context(), m.ledger.all(), false) {
		if s.Knob == plan.MemoryOOMGroup {
			found = s.Recorded != nil && len(s.Recorded.Ours) == 1 && s.Recorded.Ours[0].Value == plan.Int(1) && s.Recorded.Back.Value == plan.Int(0)
			if !found {
				t.Errorf("%+v", s)
			}
		}
	}
	if !found {
		t.Error("nothing to tell of memory.oom.group")
	}
}

// The next life puts back what the one before was killed over, and takes nothing of systemd's for its own.
func TestRecallBeside(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]bool{"killed": true, "lived on": false} {
		m, systemd := newClobbering(t)
		m.Tree.Set(t, ctr, "memory.oom.group", "1")
		tell := func() { systemd.told(m, apply.Written) }
		if killed {
			systemd.killed(tell)
		} else {
			tell()
		}
		next := m.later(t, func(o *apply.Options) { o.Units = systemd })
		if s := next.Recall(m.ledger.all()); len(s) != 0 {
			t.Errorf("%s: %+v stands of ours", name, s)
		}
		if v, ok := next.Last(plan.ID{Target: targetOf(ctr), Knob: plan.MemoryOOMGroup}); ok {
			t.Errorf("%s: %s was written by us", name, v)
		}
		lines := len(m.ledger.all())
		systemd.told(next, apply.Written)
		systemd.stands("1", name+", and another life")
		same(t, m.ledger.lines(lines), share) // it has been recorded
	}
}
