// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

const (
	all  = "/kubepods"
	qos  = all + "/burstable"
	pod  = qos + "/podX"
	ctr  = pod + "/c1"
	ctr2 = pod + "/c2"
)

// targetOf derives the level from the depth of a path.
func targetOf(cg string) plan.Target {
	level := []plan.Level{plan.LevelQoS, plan.LevelQoS, plan.LevelPod, plan.LevelContainer}[strings.Count(cg, "/")-1]
	return plan.Target{Level: level, Cgroup: cg, Name: "default" + cg}
}

func set(cg string, k plan.Knob, v plan.Value) plan.Setting {
	return plan.Setting{Target: targetOf(cg), Knob: k, Value: v, Reason: "test"}
}

func keyed(cg string, k plan.Knob, key string, v plan.Value) plan.Setting {
	s := set(cg, k, v)
	s.Key = key
	return s
}

// ledger is a journal in memory.
type ledger struct {
	mu      sync.Mutex
	records []journal.Record
	err     error
}

func (l *ledger) Append(records ...journal.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	l.records = append(l.records, records...)
	return nil
}

func (l *ledger) all() []journal.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]journal.Record(nil), l.records...)
}

// lines prints records from the n-th on: "direct cpu.weight: 100 → 39".
func (l *ledger) lines(n int) []string {
	var out []string
	for _, r := range l.all()[n:] {
		line := fmt.Sprintf("%s %s %s→%s", r.Via, r.Knob, strings.Join(r.Original, ","), strings.Join(r.Written, ","))
		if r.Err != "" {
			line += " failed"
		}
		out = append(out, line)
	}
	return out
}

// machine is a fake node with an applier.
type machine struct {
	*kerneltest.Tree
	*apply.Applier
	ledger *ledger
	tasks  *tasks
	groups *groups
}

func newMachine(t testing.TB, kernel string, change ...func(*apply.Options)) *machine {
	t.Helper()
	tr := kerneltest.New(t, kernel, ctr, ctr2)
	m := &machine{Tree: tr, ledger: &ledger{}, tasks: &tasks{sched: map[int]int{}, oom: map[int]int{}, cookie: map[int]string{}}, groups: &groups{tree: tr, class: map[int]string{}, mon: map[int]string{}}}
	m.Applier = m.applier(t, change...)
	return m
}

// applier is another one of the same node and the same ledger.
func (m *machine) applier(t testing.TB, change ...func(*apply.Options)) *apply.Applier {
	t.Helper()
	o := apply.Options{
		FS: m.files(t), Roots: m.Roots, Journal: m.ledger, Writer: m.Tree, Tasks: m.tasks, Cookies: cookies{m.tasks}, Groups: m.groups,
		Now: func() time.Time { return time.Unix(1, 0).UTC() },
	}
	for _, c := range change {
		c(&o)
	}
	a, err := apply.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (m *machine) files(t testing.TB) cgroup.FS {
	t.Helper()
	fs, err := cgroup.Open(m.Roots, m.Version, cgroup.Options{Weight: unit.Quadratic, PodWeight: unit.Linear})
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// apply applies a plan and demands that nothing fails.
func (m *machine) apply(t testing.TB, p ...plan.Setting) []apply.Result {
	t.Helper()
	results := m.Apply(t.Context(), p, 7)
	for _, r := range results {
		if r.Err != nil {
			t.Fatalf("%s of %s: %v", r.Setting.Knob, r.Setting.Target, r.Err)
		}
	}
	return results
}

// tasks is a process table.
type tasks struct {
	mu         sync.Mutex
	sched, oom map[int]int
	cookie     map[int]string
	fork       func() // before each write; may be nil
}

func (f *tasks) get(m map[int]int, pid int) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, ok := m[pid]
	if !ok {
		return 0, unix.ESRCH
	}
	return v, nil
}

func (f *tasks) put(m map[int]int, pid, v int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := m[pid]; !ok {
		return unix.ESRCH
	}
	if f.fork != nil {
		f.fork()
	}
	m[pid] = v
	return nil
}

func (f *tasks) SchedPolicy(pid int) (int, error)     { return f.get(f.sched, pid) }
func (f *tasks) SetSchedPolicy(pid, policy int) error { return f.put(f.sched, pid, policy) }
func (f *tasks) OOMScoreAdj(pid int) (int, error)     { return f.get(f.oom, pid) }
func (f *tasks) SetOOMScoreAdj(pid, score int) error  { return f.put(f.oom, pid, score) }

// start makes processes.
func (m *machine) start(t testing.TB, cg string, pids ...int) {
	t.Helper()
	m.SetProcs(t, cg, pids...)
	for _, pid := range pids {
		m.tasks.sched[pid], m.tasks.oom[pid] = 0, 0
	}
}

type cookies struct{ *tasks }

func (c cookies) Assign(group string, pid int) error { c.cookie[pid] = group; return nil }
func (c cookies) InGroup(group string, pid int) (bool, error) {
	return c.cookie[pid] == group, nil
}
func (c cookies) Clear(pid int) error { delete(c.cookie, pid); return nil }

// groups is resctrl: membership in memory, schemata in the fake tree.
type groups struct {
	tree       *kerneltest.Tree
	class, mon map[int]string
}

func (g *groups) MoveTasks(group string, pids []int) error {
	for _, pid := range pids {
		g.class[pid] = group
		delete(g.mon, pid)
	}
	return nil
}
func (g *groups) InGroup(group string, pid int) (bool, error) { return g.class[pid] == group, nil }
func (g *groups) InMon(group, mon string, pid int) (bool, error) {
	return g.mon[pid] == group+"/"+mon, nil
}
func (g *groups) AddMon(group, mon string, pids []int) error {
	for _, pid := range pids {
		if g.class[pid] != group {
			return unix.EINVAL
		}
		g.mon[pid] = group + "/" + mon
	}
	return nil
}
func (g *groups) file(group string) string {
	return strings.TrimRight(g.tree.Roots.Resctrl+"/"+group, "/") + "/schemata"
}

// remake is rmdir and mkdir of a group.
func (g *groups) remake(t testing.TB, group string) {
	t.Helper()
	if err := os.RemoveAll(g.tree.Roots.Resctrl + "/" + group); err != nil {
		t.Fatal(err)
	}
	g.tree.Group(t, group)
}

func (g *groups) Schemata(group string) (string, error) { return readFile(g.file(group)) }
func (g *groups) SetSchemata(group, line string) error {
	return g.tree.Write(g.file(group), line, false)
}
