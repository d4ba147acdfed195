// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// later is the next process on the same machine.
func (m *machine) later(t *testing.T, change ...func(*apply.Options)) *machine {
	t.Helper()
	next := newMachine(t, "6.12", func(o *apply.Options) {
		*o = apply.Options{
			FS: m.files(t), Roots: m.Roots, Journal: m.ledger, Writer: m.Tree, Tasks: m.tasks, Cookies: cookies{m.tasks}, Groups: m.groups,
		}
		for _, c := range change {
			c(o)
		}
	})
	next.Tree, next.ledger, next.tasks, next.groups = m.Tree, m.ledger, m.tasks, m.groups
	return next
}

// A kubelet that resizes a pod writes over our value; we write ours again, and a restore returns to the new value and not to the
// one of the beginning. So it is over a restart and over a change of the weight formula.
func TestRestoreFollowsTheKubelet(t *testing.T) {
	t.Parallel()
	for _, kernel := range []string{"v1", "6.12"} {
		for name, between := range map[string]func(*testing.T, *machine) *machine{
			"one life":  func(_ *testing.T, m *machine) *machine { return m },
			"a restart": func(t *testing.T, m *machine) *machine { n := m.later(t); n.Recall(m.ledger.all()); return n },
			"a heir":    func(t *testing.T, m *machine) *machine { n := m.later(t); n.Inherit(m.Applier); return n },
		} {
			t.Run(kernel+"/"+name, func(t *testing.T) {
				t.Parallel()
				m := newMachine(t, kernel)
				quota, limit, of := "cpu.max", "memory.max", func(n string) string { return n + " 100000" }
				free := "max 100000"
				if m.Version == node.CgroupV1 {
					quota, limit, of, free = "cpu.cfs_quota_us", "memory.limit_in_bytes", func(n string) string { return n }, "-1"
				}
				m.Set(t, pod, quota, of("100000"))
				m.Set(t, pod, limit, "67108864")
				ours := plan.Plan{set(pod, plan.CPUQuota, plan.Int(-1)), set(pod, plan.MemoryLimit, plan.Int(100<<20))}
				m.apply(t, ours...)
				next := between(t, m)
				m.Set(t, pod, quota, of("200000")) // the kubelet
				m.Set(t, pod, limit, "134217728")
				next.apply(t, ours...)
				next.apply(t, set(pod, plan.CPUQuota, plan.Int(300000))) // over our own value
				next.apply(t, ours...)
				if got := m.Get(t, pod, quota); got != free {
					t.Fatalf("%s is %s", quota, got)
				}
				for _, s := range next.Restore(t.Context(), m.ledger.all(), false) {
					if s.Err != nil {
						t.Errorf("%s: %v", s.Knob, s.Err)
					}
				}
				if got := m.Get(t, pod, quota); got != of("200000") {
					t.Errorf("%s returns to %s, want what the kubelet has written", quota, got)
				}
				if got := m.Get(t, pod, limit); got != "134217728" {
					t.Errorf("%s returns to %s, want what the kubelet has written", limit, got)
				}
			})
		}
	}
}

// Another process of ours is not somebody else, and neither is the kernel that forgets a weight beside cpu.idle.
func TestRestoreIsNotLedAstray(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12")
	m.Set(t, pod, "cpu.weight", "39")
	before := m.Snapshot(t)
	other := m.later(t)
	m.apply(t, set(pod, plan.MemoryHigh, plan.Int(1<<20)))
	other.apply(t, set(pod, plan.MemoryHigh, plan.Int(2<<20)))
	m.apply(t, set(pod, plan.MemoryHigh, plan.Int(3<<20))) // it had written 1 MiB and finds 2
	m.apply(t, set(pod, plan.CPUShares, plan.Int(512)))
	m.apply(t, set(pod, plan.CPUIdle, plan.Int(1)))
	m.apply(t, set(pod, plan.CPUIdle, plan.Int(0)))
	m.apply(t, set(pod, plan.CPUShares, plan.Int(512)))
	restored(t, m, before)
}

// A weight that was written again after cpu.idle, and comes back along with that, is over: a second restore has nothing to do.
func TestRestoreOfIdleEndsTheWeight(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12")
	m.Set(t, pod, "cpu.weight", "1")
	before := m.Snapshot(t)
	m.apply(t, set(pod, plan.CPUIdle, plan.Int(1)))
	m.apply(t, set(pod, plan.CPUIdle, plan.Int(0)))
	m.apply(t, set(pod, plan.CPUShares, plan.Int(2)))
	restored(t, m, before)
	restored(t, m, before)
}

// systemd brings an older value of ours back when it writes its units: that is nobody else's, and is not recorded as if it were. What
// somebody else has set is, also where we gave the same value back before.
func TestRestoreKnowsItsOlderValues(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		between func(*testing.T, *machine) *machine
		back    string // an older value of ours
	}{
		"one life":  {func(_ *testing.T, m *machine) *machine { return m }, "8192"},
		"the first": {func(_ *testing.T, m *machine) *machine { return m }, "4096"},
		"a restart": {func(t *testing.T, m *machine) *machine { n := m.later(t); n.Recall(m.ledger.all()); return n }, "16384"},
		"a heir":    {func(t *testing.T, m *machine) *machine { n := m.later(t); n.Inherit(m.Applier); return n }, "8192"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "6.12")
			before := m.Snapshot(t)
			for _, pages := range []int64{1, 2, 3, 2, 4, 5} {
				m.apply(t, set(pod, plan.MemoryLow, plan.Int(pages*4096)))
			}
			m.apply(t, set(pod, plan.MemoryLow, plan.Int(0))) // gives back
			m.apply(t, set(pod, plan.MemoryLow, plan.Int(20480)))
			next := tc.between(t, m)
			m.Set(t, pod, "memory.low", tc.back)
			next.apply(t, set(pod, plan.MemoryLow, plan.Int(24576)))
			for _, r := range m.ledger.all() {
				if r.Theirs {
					t.Errorf("recorded as somebody else's: %+v", r)
				}
			}
			m.Set(t, pod, "memory.low", "0") // somebody else
			next.apply(t, set(pod, plan.MemoryLow, plan.Int(24576)))
			if r := m.ledger.all(); !r[len(r)-1].Theirs || r[len(r)-1].Found != "0" {
				t.Errorf("not recorded as somebody else's: %+v", r[len(r)-1])
			}
			restored(t, m, before)
		})
	}
}

// Recall tells what of our direct writes stands, and what stood there before us.
func TestRecall(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12")
	m.start(t, ctr, 10, 11)
	m.Set(t, pod, "cpu.max", "70000 100000")
	m.apply(t, set(pod, plan.CPUQuota, plan.Int(50000)), set(pod, plan.CPUBurst, plan.Int(10000)), set(pod, plan.MemoryLow, plan.Int(4096)),
		keyed(pod, plan.IOReadBPS, "8:0", plan.Int(1<<20)), set(ctr, plan.SchedPolicy, plan.Int(5)), set(ctr, plan.OOMScoreAdj, plan.Int(7)),
		set(ctr, plan.CPUSetCPUs, plan.Text("0-3")), set(qos, plan.MemoryMin, plan.Int(4096)))
	m.apply(t, set(pod, plan.CPUBurst, plan.Int(20000)))
	m.Set(t, pod, "memory.low", "8192") // somebody else
	m.tasks.oom[10], m.tasks.oom[11] = 1, 1
	m.Rmdir(t, ctr2)
	var got []string
	for _, s := range m.later(t).Recall(m.ledger.all()) {
		line := fmt.Sprintf("%s %s%s %s", s.ID.Target.Cgroup, s.ID.Knob, s.ID.Key, s.Value)
		if s.Known {
			line += " before " + s.Original.String()
		}
		got = append(got, line)
	}
	slices.Sort(got)
	want := []string{
		qos + " memory.min 4096 before 0", ctr + " cpuset.cpus 0-3", ctr + " sched.policy 5",
		pod + " cpu.burst 20000 before 0", pod + " cpu.quota 50000 before 70000", pod + " io.read_bps8:0 1048576 before -1",
	}
	slices.Sort(want)
	same(t, got, want...)
}

// systemd plays PID 1: it keeps properties, and a change of one, or a daemon-reload, writes its own idea of them.
type systemd struct {
	t     *testing.T
	tree  *kerneltest.Tree
	props map[string]map[plan.Knob]plan.Value
	err   error
}

func (u *systemd) Has(cgroup string, k plan.Knob) bool {
	return cgroup == pod && (k == plan.MemoryLow || k == plan.CPUQuota || k == plan.CPUPeriod)
}

func (u *systemd) Held(context.Context, string) (map[plan.Knob]string, error) { return nil, u.err }

func (u *systemd) Set(_ context.Context, cgroup string, settings []plan.Setting) error {
	for i := range settings {
		u.props[cgroup][settings[i].Knob] = settings[i].Value
	}
	if u.err == nil {
		u.reload()
	}
	return u.err
}

// reload rounds quotas up to 10 ms a second, as systemd does.
func (u *systemd) reload() {
	if v, ok := u.props[pod][plan.MemoryLow]; ok {
		u.tree.Set(u.t, pod, "memory.low", v.String())
	}
	if v, ok := u.props[pod][plan.CPUQuota]; ok {
		u.tree.Set(u.t, pod, "cpu.max", fmt.Sprintf("%d 100000", (v.Int()+999)/1000*1000))
	}
}

// After a restore the units have what the files have: what stood there before us, or what somebody else has written since. A
// daemon-reload then brings nothing of ours back.
func TestRestoreGivesUnitsBack(t *testing.T) {
	t.Parallel()
	bus := &systemd{t: t, props: map[string]map[plan.Knob]plan.Value{pod: {}}}
	m := newMachine(t, "6.12", func(o *apply.Options) { o.Units = bus })
	bus.tree = m.Tree
	m.Set(t, pod, "cpu.max", "33300 100000")
	p := plan.Plan{set(pod, plan.MemoryLow, plan.Int(4096)), set(pod, plan.CPUQuota, plan.Int(50000)), set(pod, plan.MemoryHigh, plan.Int(1<<20))}
	m.apply(t, p...)
	for _, r := range m.SyncUnits(t.Context(), p, 1) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	m.Set(t, pod, "memory.low", "12288") // somebody else, past systemd
	bus.err = errors.New("no bus")
	steps := m.Restore(t.Context(), m.ledger.all(), false)
	failed := 0
	for _, s := range steps {
		if errors.Is(s.Err, bus.err) {
			failed++
		}
	}
	if failed != 2 {
		t.Errorf("%d of 2 knobs say that their unit was not reached: %+v", failed, steps)
	}
	bus.err = nil
	m.apply(t, p[1])
	m.SyncUnits(t.Context(), p[1:2], 1)
	m.Restore(t.Context(), m.ledger.all(), false)
	if got := m.Get(t, pod, "cpu.max"); got != "33300 100000" {
		t.Errorf("cpu.max is %s after the restore", got)
	}
	bus.reload()
	if got := m.Get(t, pod, "cpu.max"); got != "34000 100000" { // systemd's own rounding of what the kubelet had asked
		t.Errorf("cpu.max is %s after a daemon-reload", got)
	}
	if got := m.Get(t, pod, "memory.low"); got != "12288" {
		t.Errorf("memory.low is %s after a daemon-reload", got)
	}
}

// Last tells what was written, in this life or an earlier one, and neither what stood already nor what was given back.
func TestLast(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "v1")
	m.Set(t, pod, "cpu.cfs_quota_us", "100000")
	burst := set(pod, plan.CPUBurst, plan.Int(50000))
	want := func(m *machine, when string, value int64, known bool) {
		t.Helper()
		if got, ok := m.Last(burst.ID()); ok != known || ok && got != plan.Int(value) {
			t.Errorf("%s: %s, %t; want %d, %t", when, got, ok, value, known)
		}
	}
	want(m, "nothing written", 0, false)
	m.Set(t, pod, "cpu.cfs_burst_us", "50000")
	m.apply(t, burst)
	want(m, "it stood", 0, false)
	m.Set(t, pod, "cpu.cfs_burst_us", "0")
	m.apply(t, burst)
	want(m, "written", 50000, true)
	m.Set(t, pod, "cpu.cfs_burst_us", "60000")
	want(m, "a hand's", 50000, true)
	m.apply(t, burst)
	next := m.later(t)
	want(next, "another life", 0, false)
	next.Recall(m.ledger.all())
	want(next, "recalled", 50000, true)
	m.apply(t, set(pod, plan.CPUBurst, plan.Int(0)))
	want(m, "lowered", 0, true)
	if err := m.Forget(burst.Target); err != nil {
		t.Fatal(err)
	}
	want(m, "forgotten", 0, false)
}
