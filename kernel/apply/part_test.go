// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/shape"
)

// partial is a kernel that refuses the writes of some files and processes while on.
type partial struct {
	apply.Writer
	*tasks
	file string
	pid  int
	on   bool
}

func (p *partial) Write(path, value string, nonblock bool) error {
	if p.on && p.file != "" && strings.HasSuffix(path, p.file) {
		return unix.EBUSY
	}
	return p.Writer.Write(path, value, nonblock)
}

func (p *partial) refuses(pid int) error {
	if p.on && pid == p.pid {
		return unix.EPERM
	}
	return nil
}

func (p *partial) SetOOMScoreAdj(pid, score int) error {
	return errors.Join(p.refuses(pid), p.only(pid, func() error { return p.tasks.SetOOMScoreAdj(pid, score) }))
}

func (p *partial) SetSchedPolicy(pid, policy int) error {
	return errors.Join(p.refuses(pid), p.only(pid, func() error { return p.tasks.SetSchedPolicy(pid, policy) }))
}

func (p *partial) only(pid int, set func() error) error {
	if p.refuses(pid) != nil {
		return nil
	}
	return set()
}

// partialCookies refuse the same process.
type partialCookies struct{ *partial }

func (c partialCookies) Assign(group string, pid int) error {
	return errors.Join(c.refuses(pid), c.only(pid, func() error { return cookies{c.tasks}.Assign(group, pid) }))
}

func (c partialCookies) InGroup(group string, pid int) (bool, error) {
	return cookies{c.tasks}.InGroup(group, pid)
}
func (c partialCookies) Clear(pid int) error { return cookies{c.tasks}.Clear(pid) }

// partialGroups move the processes before the one that is refused.
type partialGroups struct {
	apply.Groups
	*partial
}

func (g partialGroups) MoveTasks(group string, pids []int) error {
	for i, pid := range pids {
		if err := g.refuses(pid); err != nil {
			return errors.Join(g.Groups.MoveTasks(group, pids[:i]), err)
		}
	}
	return g.Groups.MoveTasks(group, pids)
}

func newPartial(t *testing.T, kernel string) (*machine, *partial) {
	t.Helper()
	p := &partial{pid: 11}
	m := newMachine(t, kernel, func(o *apply.Options) {
		p.Writer, o.Writer = o.Writer, p
		p.tasks = o.Tasks.(*tasks)
		o.Tasks, o.Cookies, o.Groups = p, partialCookies{p}, partialGroups{o.Groups, p}
	})
	m.start(t, ctr, 10, 11, 12)
	return m, p
}

// What has gone in of a write that failed is ours: a restore undoes it, by this life or the next, and it is recorded once.
func TestPartOfAWriteIsOurs(t *testing.T) {
	t.Parallel()
	limit := plan.Plan{set(ctr, plan.MemoryLimit, plan.Int(1<<20))}
	for name, late := range map[string]bool{"at once": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, p := newPartial(t, "v1")
			m.Set(t, ctr, "memory.memsw.limit_in_bytes", "1073741824")
			m.Set(t, ctr, "memory.limit_in_bytes", "1073741824")
			before := m.Snapshot(t)
			p.file, p.on = "memory.memsw.limit_in_bytes", true
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if late { // than anybody waits
				m.Set(t, ctr, "memory.usage_in_bytes", "2097152")
				before = m.Snapshot(t)
				cancel()
			}
			if r := m.Apply(ctx, limit, 1)[0]; r.Outcome != apply.Failed && !late {
				t.Fatalf("%+v", r)
			}
			if err := m.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := m.Get(t, ctr, "memory.limit_in_bytes"); got != "1048576" {
				t.Fatalf("the test shows nothing: %s", got)
			}
			same(t, m.ledger.lines(0), "direct memory.limit 1073741824,1073741824→1048576,1048576", "direct memory.limit → failed",
				"direct memory.limit 1073741824→1048576 failed")
			for range 20 {
				if r := m.Apply(t.Context(), limit, 1)[0]; r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			if n := len(m.ledger.all()); n > 4 {
				t.Errorf("%d records of a write that stands", n)
			}
			p.on = false
			if got := m.later(t).Recall(m.ledger.all()); len(got) != 1 || got[0].Value != plan.Int(1<<20) {
				t.Errorf("not recalled: %+v", got)
			}
			restored(t, m, before)
		})
	}
}

// A companion that was written before the knob's own file was refused is put back: nothing of ours stands.
func TestCompanionAloneIsPutBack(t *testing.T) {
	t.Parallel()
	m, p := newPartial(t, "v1")
	m.Set(t, ctr, "memory.limit_in_bytes", "1048576")
	m.Set(t, ctr, "memory.memsw.limit_in_bytes", "1048576")
	before := m.Snapshot(t)
	p.file, p.on = "/memory.limit_in_bytes", true
	for range 3 {
		if r := m.Apply(t.Context(), plan.Plan{set(ctr, plan.MemoryLimit, plan.Int(1<<21))}, 1)[0]; r.Outcome != apply.Failed {
			t.Fatalf("%+v", r)
		}
	}
	if log := strings.Join(m.Log(), " "); !strings.Contains(log, "memory.memsw.limit_in_bytes=2097152") {
		t.Errorf("the test shows nothing: %s", log)
	}
	if diff := kerneltest.Diff(before, m.Snapshot(t)); diff != "" {
		t.Errorf("left:\n%s", diff)
	}
	if lines := m.ledger.lines(0); len(lines) != 6 || lines[5] != "direct memory.limit → failed" {
		t.Errorf("%v", lines)
	}
	for _, s := range m.Restore(t.Context(), m.ledger.all(), false) {
		if s.Action != apply.ActKeep || s.Reason != "never written by us" {
			t.Errorf("%+v", s)
		}
	}
}

// A process that refuses does not keep the others from the value, and those that have it are given back; the one that refuses does not
// fill the ledger with the others.
func TestPartOfTheProcesses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		s     plan.Setting
		reads func(*machine) []string
		want  string // what 10, 11 and 12 have while 11 refuses
	}{
		{set(ctr, plan.OOMScoreAdj, plan.Int(7)), func(m *machine) []string { return numbers(m.tasks.oom) }, "7 0 7"},
		{set(ctr, plan.SchedPolicy, plan.Int(5)), func(m *machine) []string { return numbers(m.tasks.sched) }, "5 0 5"},
		{set(ctr, plan.CoreSchedCookie, plan.Text("g")), func(m *machine) []string { return texts(m.tasks.cookie) }, "g - g"},
		{set(ctr, plan.RDTClass, plan.Text("BE")), func(m *machine) []string { return texts(m.groups.class) }, "BE - -"},
	} {
		t.Run(tc.s.Knob.String(), func(t *testing.T) {
			t.Parallel()
			m, p := newPartial(t, "6.12")
			before := strings.Join(tc.reads(m), " ")
			p.on = true
			for range 5 {
				if r := m.Apply(t.Context(), plan.Plan{tc.s}, 1)[0]; r.Outcome != apply.Failed || !errors.Is(r.Err, unix.EPERM) {
					t.Fatalf("%+v", r)
				}
			}
			if got := strings.Join(tc.reads(m), " "); got != tc.want {
				t.Errorf("the processes have %s, want %s", got, tc.want)
			}
			if n := len(m.ledger.all()); n != 2*5+1 {
				t.Errorf("%d records:\n%s", n, strings.Join(m.ledger.lines(0), "\n"))
			}
			p.on = false
			steps := m.later(t).Restore(t.Context(), m.ledger.all(), false)
			if got := strings.Join(tc.reads(m), " "); got != before || len(steps) != 1 || steps[0].Err != nil {
				t.Errorf("restored to %s, want %s: %+v", got, before, steps)
			}
		})
	}
}

// A restore gives the others back, too, beside one that refuses.
func TestRestoreOfTheOthers(t *testing.T) {
	t.Parallel()
	m, p := newPartial(t, "6.12")
	m.apply(t, set(ctr, plan.OOMScoreAdj, plan.Int(7)))
	p.on = true
	for range 2 {
		if steps := m.Restore(t.Context(), m.ledger.all(), false); len(steps) != 1 || !errors.Is(steps[0].Err, unix.EPERM) {
			t.Errorf("%+v", steps)
		}
		if got := numbers(m.tasks.oom); !slices.Equal(got, []string{"0", "7", "0"}) {
			t.Errorf("%v", got)
		}
	}
	p.on = false
	m.Restore(t.Context(), m.ledger.all(), false)
	if got := numbers(m.tasks.oom); !slices.Equal(got, []string{"0", "0", "0"}) {
		t.Errorf("%v", got)
	}
}

// halfQueues leave what they refuse half made.
type halfQueues struct {
	queues
	half bool
}

func (q *halfQueues) SetShape(key, value string) error {
	if q.half {
		q.has[key] = shape.Half
		return unix.EPERM
	}
	return q.queues.SetShape(key, value)
}

// A shape that the kernel has refused half-way is ours to take away.
func TestRestoreOfARefusedShape(t *testing.T) {
	t.Parallel()
	q := &halfQueues{queues: queues{has: map[string]string{"eth0/egress": "qdisc fq 8001 AAAA"}}, half: true}
	a, l := linked(t, q)
	for range 3 {
		if r := a.Apply(t.Context(), plan.Plan{shaped("eth0/egress", "htb total=8 system=8/8/0")}, 1)[0]; r.Outcome != apply.Failed {
			t.Fatalf("%+v", r)
		}
	}
	q.half = false
	for _, s := range a.Restore(t.Context(), l.all(), false) {
		if s.Err != nil {
			t.Error(s.Err)
		}
	}
	if got := q.has["eth0/egress"]; got != "qdisc fq 8001 AAAA" {
		t.Errorf("restored to %s", got)
	}
}

// numbers and texts are what 10, 11 and 12 have.
func numbers(of map[int]int) (out []string) {
	for pid := 10; pid <= 12; pid++ {
		out = append(out, fmt.Sprint(of[pid]))
	}
	return out
}

func texts(of map[int]string) (out []string) {
	for pid := 10; pid <= 12; pid++ {
		out = append(out, cmp.Or(of[pid], "-"))
	}
	return out
}
