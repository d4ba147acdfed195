// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
)

// units records what is to become a property; held is what each unit has.
type units struct {
	calls map[string]int
	held  map[string]map[plan.Knob]string
	asked int
	err   error
}

func (u *units) Held(_ context.Context, cgroup string) (map[plan.Knob]string, error) {
	u.asked++
	return u.held[cgroup], u.err
}

func (*units) Has(_ string, k plan.Knob) bool { return k != plan.CPUBurst }

func (u *units) Set(_ context.Context, cgroup string, settings []plan.Setting) error {
	u.calls[cgroup] += len(settings)
	return u.err
}

func TestSyncUnits(t *testing.T) {
	t.Parallel()
	u := &units{calls: map[string]int{}}
	m := newMachine(t, "6.12", func(o *apply.Options) { o.Units = u })
	p := plan.Plan{set(pod, plan.CPUShares, plan.Int(2)), set(ctr, plan.MemoryHigh, plan.Int(-1)), set(pod, plan.MemoryMin, plan.Int(0)), set(ctr, plan.OOMScoreAdj, plan.Int(1))}
	r := m.SyncUnits(t.Context(), p, 1)
	if u.calls[pod] != 2 || u.calls[ctr] != 1 || r[0].Outcome != apply.Written || r[3].Outcome != apply.Skipped {
		t.Errorf("calls %v, results %+v", u.calls, r)
	}
	same(t, m.ledger.lines(0), "systemd cpu.shares →", "systemd memory.min →", "systemd memory.high →")
	burst := plan.Plan{set(pod, plan.CPUBurst, plan.Int(0))}
	if r := m.SyncUnits(t.Context(), burst, 1); r[0].Outcome != apply.Skipped || u.calls[pod] != 2 || len(m.ledger.lines(3)) != 0 {
		t.Errorf("what has no property: %+v, calls %v, ledger %v", r, u.calls, m.ledger.lines(3))
	}
	u.err = errors.New("no bus")
	if r := m.SyncUnits(t.Context(), p, 1); r[1].Outcome != apply.Failed || !errors.Is(r[1].Err, u.err) {
		t.Errorf("results %+v", r[1])
	}
}

// clobbering is a systemd that writes what it knows of memory.oom.group with every property.
type clobbering struct {
	units
	m *machine
	t *testing.T
	// meanwhile happens after it has written, and before its reply.
	meanwhile func()
}

func (c *clobbering) Set(ctx context.Context, cgroup string, settings []plan.Setting) error {
	if c.m.Exists(cgroup) {
		c.m.Tree.Set(c.t, cgroup, "memory.oom.group", "0")
	}
	c.meanwhile()
	return c.units.Set(ctx, cgroup, settings)
}

func newClobbering(t *testing.T) (*machine, *clobbering) {
	t.Helper()
	c := &clobbering{units: units{calls: map[string]int{}}, t: t, meanwhile: func() {}}
	c.m = newMachine(t, "6.12", func(o *apply.Options) { o.Units = c })
	return c.m, c
}

// Whatever stands in memory.oom.group when a property is set stands there afterwards, and is recorded once before that.
func TestBesideProperties(t *testing.T) {
	t.Parallel()
	m, systemd := newClobbering(t)
	weight := plan.Plan{set(ctr, plan.CPUShares, plan.Int(2))}
	sync := func(want apply.Outcome) {
		t.Helper()
		if r := m.SyncUnits(t.Context(), weight, 1); r[0].Outcome != want {
			t.Errorf("outcome %s, %v, want %s", r[0].Outcome, r[0].Err, want)
		}
	}
	stands := func(want string) {
		t.Helper()
		if got := m.Get(t, ctr, "memory.oom.group"); got != want {
			t.Errorf("memory.oom.group is %s, want %s", got, want)
		}
	}
	const kept, told = "direct memory.oom.group 1→0", "systemd cpu.shares →"
	sync(apply.Written)
	same(t, m.ledger.lines(0), told) // nothing to lose

	m.Tree.Set(t, ctr, "memory.oom.group", "1")
	systemd.meanwhile = func() {
		if lines := m.ledger.lines(0); !slices.Contains(lines, kept) {
			t.Errorf("systemd is told before it is recorded: %q", lines)
		}
	}
	sync(apply.Written)
	stands("1")
	sync(apply.Written)
	stands("1")
	systemd.err = errors.New("it has written and says no")
	sync(apply.Failed)
	stands("1")
	systemd.err = nil
	same(t, m.ledger.lines(1), kept, told, told)

	// A value of ours that comes meanwhile is the newer one.
	systemd.meanwhile = func() {
		for _, n := range []int64{1, 0} {
			m.apply(t, set(ctr, plan.MemoryOOMGroup, plan.Int(n)))
		}
	}
	sync(apply.Written)
	stands("0")

	// What cannot be recorded is not risked.
	m.Tree.Set(t, ctr2, "memory.oom.group", "1")
	weight[0].Target = targetOf(ctr2)
	systemd.meanwhile = func() { t.Error("systemd was told") }
	m.ledger.err = errors.New("disk full")
	if r := m.SyncUnits(t.Context(), weight, 1); r[0].Outcome != apply.Failed || !errors.Is(r[0].Err, apply.ErrLedger) {
		t.Errorf("outcome %s, %v", r[0].Outcome, r[0].Err)
	}
	m.ledger.err = nil
	systemd.meanwhile = func() { m.Rmdir(t, ctr2) }
	if r := m.SyncUnits(t.Context(), weight, 1); r[0].Err != nil {
		t.Errorf("a container that ends meanwhile: %v", r[0].Err)
	}
}

// killed does something and forgets all that came after systemd had written: as if we had ended then.
func (c *clobbering) killed(do func()) {
	n := -1
	c.meanwhile = func() { n = len(c.m.ledger.all()) }
	do()
	c.meanwhile = func() {}
	if n < 0 {
		c.t.Fatal("systemd was not told")
	}
	c.m.ledger.records = c.m.ledger.records[:n]
	c.m.Tree.Set(c.t, ctr, "memory.oom.group", "0")
}

// Killed while systemd's value stands, we leave a ledger that a restore brings the kubelet's value back from: also where a drift check has
// put it back before, where ours was the same, and where the restore is killed at its own change of a property. Ours is taken back.
func TestRestoreBeside(t *testing.T) {
	t.Parallel()
	weight := set(ctr, plan.CPUShares, plan.Int(2))
	group := func(n int64) plan.Setting { return set(ctr, plan.MemoryOOMGroup, plan.Int(n)) }
	for name, c := range map[string]struct {
		kubelet string
		before  func(m *machine)
	}{
		"nothing of ours":  {"1", func(*machine) {}},
		"nothing at all":   {"0", func(*machine) {}},
		"ours is the same": {"1", func(m *machine) { m.apply(t, group(1)) }},
		"ours":             {"0", func(m *machine) { m.apply(t, group(1)) }},
		"ours is none":     {"1", func(m *machine) { m.apply(t, group(0)) }},
		"ours was none":    {"1", func(m *machine) { m.apply(t, group(0)); m.apply(t, group(1)) }},
		"put back, as after a runtime's update": {"1", func(m *machine) {
			m.SyncUnits(t.Context(), plan.Plan{weight}, 1)
			m.Tree.Set(t, ctr, "memory.oom.group", "0")
			m.apply(t, group(1))
		}},
	} {
		for _, dies := range []string{"nowhere", "agent and restore"} {
			t.Run(name+", killed "+dies, func(t *testing.T) {
				t.Parallel()
				m, systemd := newClobbering(t)
				m.Tree.Set(t, ctr, "memory.oom.group", c.kubelet)
				m.apply(t, weight)
				c.before(m)
				tell := func() { m.SyncUnits(t.Context(), plan.Plan{weight}, 1) }
				restore := func() {
					next := m.later(t, func(o *apply.Options) { o.Units = systemd })
					for _, s := range next.Restore(t.Context(), m.ledger.all(), false) {
						if s.Err != nil {
							t.Errorf("%s of %s: %v", s.Knob, s.Target, s.Err)
						}
					}
				}
				if dies == "nowhere" {
					tell()
				} else {
					systemd.killed(tell)
					systemd.killed(restore)
				}
				for n := range 2 {
					restore()
					if got := m.Get(t, ctr, "memory.oom.group"); got != c.kubelet {
						t.Errorf("after restore %d memory.oom.group is %s, want %s; ledger %q", n, got, c.kubelet, m.ledger.lines(0))
					}
				}
			})
		}
	}
}
