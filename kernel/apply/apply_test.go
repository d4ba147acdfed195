// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

func readFile(path string) (string, error) {
	b, err := os.ReadFile(path)
	return string(b), err
}

func TestWritesOnlyDifferences(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12")
	p := plan.Plan{set(pod, plan.CPUShares, plan.Int(1024)), set(ctr, plan.MemoryHigh, plan.Int(1<<20)), set(ctr, plan.MemoryLow, plan.Int(0))}
	results := m.apply(t, p...)
	if got := []apply.Outcome{results[0].Outcome, results[1].Outcome, results[2].Outcome}; !slices.Equal(got, []apply.Outcome{apply.Written, apply.Written, apply.Unchanged}) {
		t.Errorf("outcomes %v", got)
	}
	same(t, m.Log(), pod+"/cpu.weight=39", ctr+"/memory.high=1048576")
	// The unchanged value is recorded once, so that explain knows its owner.
	same(t, m.ledger.lines(0), "direct memory.low →", "direct cpu.shares 100→39", "direct memory.high max→1048576")
	for _, r := range m.ledger.all() {
		if r.Boot == "" || r.Inode == 0 || r.Gen != 7 || r.Reason != "test" || len(r.Files) != 1 {
			t.Errorf("incomplete record %+v", r)
		}
	}
	m.apply(t, p...)
	same(t, m.Log())
	m.Set(t, ctr, "memory.high", "max")
	m.apply(t, p...)
	same(t, m.Log(), ctr+"/memory.high=1048576")
	if n := len(m.ledger.all()); n != 4 {
		t.Errorf("%d records after drift, want 4: %v", n, m.ledger.lines(0))
	}
}

// same compares lists of lines.
func same(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestObserveWritesNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12")
	before := m.Snapshot(t)
	s := set(ctr, plan.MemoryHigh, plan.Int(1<<20))
	s.Observe = true
	for range 2 {
		if r := m.apply(t, s); r[0].Outcome != apply.Observed {
			t.Errorf("outcome %v", r[0].Outcome)
		}
	}
	same(t, m.ledger.lines(0), "observe memory.high →")
	if len(m.Log()) != 0 || len(before) != len(m.Snapshot(t)) {
		t.Error("something was written")
	}
}

// recordedFirst fails the test when a value reaches the kernel before it is in the ledger.
type recordedFirst struct {
	t *testing.T
	m *machine
}

func (w recordedFirst) Write(path, value string, nonblock bool) error {
	for _, r := range w.m.ledger.all() {
		if i := slices.Index(r.Files, path); i >= 0 && r.Written[i] == value {
			return w.m.Tree.Write(path, value, nonblock)
		}
	}
	w.t.Errorf("%s = %s was written before it was recorded", path, value)
	return nil
}

func TestRecordComesFirst(t *testing.T) {
	t.Parallel()
	w := &recordedFirst{t: t}
	m := newMachine(t, "v1", func(o *apply.Options) { o.Writer = w })
	w.m = m
	m.apply(t, set(ctr, plan.CPUQuota, plan.Int(50000)), set(ctr, plan.CPUBurst, plan.Int(50000)), set(ctr, plan.MemoryLimit, plan.Int(1<<20)), set(ctr, plan.CPUIdle, plan.Int(1)))
	m.apply(t, set(ctr, plan.CPUQuota, plan.Int(10000)), set(ctr, plan.MemoryLimit, plan.Int(1<<30)))
}

func TestLedgerFailureStopsTheWrite(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12")
	m.ledger.err = unix.ENOSPC
	r := m.Apply(t.Context(), plan.Plan{set(ctr, plan.MemoryHigh, plan.Int(1<<20))}, 1)
	if !errors.Is(r[0].Err, apply.ErrLedger) || !errors.Is(r[0].Err, unix.ENOSPC) || r[0].Outcome != apply.Failed {
		t.Errorf("result %+v", r[0])
	}
	same(t, m.Log())
	m.ledger.err = nil
	m.apply(t, set(ctr, plan.MemoryHigh, plan.Int(1<<20)))
}

func TestErrorsSayWhatTheyMean(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12", func(o *apply.Options) { o.Tasks = nil })
	m.Set(t, ctr2, "cpu.idle", "1")
	m.Set(t, ctr2, "cpu.weight", "0")
	p := plan.Plan{
		set(pod+"/gone", plan.MemoryHigh, plan.Int(4096)),
		set(ctr, plan.CPUBvt, plan.Int(2)),
		set(ctr2, plan.CPUShares, plan.Int(2)),
		set(ctr, plan.OOMScoreAdj, plan.Int(1)),
		set(ctr, plan.CPUQuota, plan.Int(5)),
		set(ctr, plan.MemoryLow, plan.Int(4096)),
		keyed(ctr, plan.Env, "A", plan.Text("b")),
	}
	want := []struct {
		outcome apply.Outcome
		is      error
		text    string
	}{
		{apply.Gone, apply.ErrGone, "gone"}, {apply.Failed, apply.ErrUnsupported, "cpu.bvt"}, {apply.Failed, unix.EINVAL, "cpu.idle is 1"},
		{apply.Failed, apply.ErrUnsupported, "oom_score_adj"}, {apply.Failed, nil, "out of range"}, {apply.Written, nil, ""}, {apply.Skipped, nil, ""},
	}
	n := 0
	for range 2 {
		results := m.Apply(t.Context(), p, 1)
		for i, w := range want {
			r := results[i]
			if r.Outcome != w.outcome && i != 5 || w.is != nil && !errors.Is(r.Err, w.is) || w.text != "" && !strings.Contains(r.Err.Error(), w.text) {
				t.Errorf("%s: %s, %v; want %s, %q", p[i].Knob, r.Outcome, r.Err, w.outcome, w.text)
			}
		}
		switch {
		case n == 0:
			n = len(m.ledger.all())
		case len(m.ledger.all()) > n+2: // the weight is tried, recorded and refused again
			t.Errorf("the same errors were recorded again: %v", m.ledger.lines(n))
		}
	}
}

// flaky refuses the first writes.
type flaky struct {
	m     *machine
	left  int
	errno unix.Errno
}

func (f *flaky) Write(path, value string, nonblock bool) error {
	if f.left--; f.left >= 0 {
		return f.errno
	}
	return f.m.Tree.Write(path, value, nonblock)
}

func TestRetries(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		errno unix.Errno
		times int
		want  apply.Outcome
	}{{unix.EBUSY, 3, apply.Written}, {unix.EAGAIN, 1, apply.Written}, {unix.EBUSY, 9, apply.Failed}, {unix.EINVAL, 1, apply.Failed}} {
		w := &flaky{left: tt.times, errno: tt.errno}
		m := newMachine(t, "6.12", func(o *apply.Options) { o.Writer = w })
		w.m = m
		r := m.Apply(t.Context(), plan.Plan{set(ctr, plan.MemoryLow, plan.Int(4096))}, 1)
		if r[0].Outcome != tt.want {
			t.Errorf("%v ×%d: %v, %v", tt.errno, tt.times, r[0].Outcome, r[0].Err)
		}
	}
}

// slow is a kernel that reclaims until it is let go.
type slow struct {
	m    *machine
	hold chan error
}

func (s *slow) Write(path, value string, nonblock bool) error {
	if !nonblock {
		return s.m.Tree.Write(path, value, nonblock)
	}
	if err := <-s.hold; err != nil {
		return err
	}
	return s.m.Tree.Write(path, value, nonblock)
}

func TestReclaimDoesNotBlock(t *testing.T) {
	t.Parallel()
	w := &slow{hold: make(chan error)}
	m := newMachine(t, "6.12", func(o *apply.Options) { o.Writer = w })
	w.m = m
	m.Set(t, ctr, "memory.current", "1048576")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := plan.Plan{set(ctr, plan.MemoryHigh, plan.Int(4096))}
	if r := m.Apply(ctx, p, 1); r[0].Outcome != apply.Pending || r[0].Err != nil {
		t.Fatalf("result %+v", r[0])
	}
	if err := m.Wait(ctx); err == nil {
		t.Error("Wait returned while the write was running")
	}
	w.hold <- nil
	if err := m.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := m.Get(t, ctr, "memory.high"); got != "4096" {
		t.Errorf("memory.high = %s", got)
	}
	m.Set(t, ctr, "memory.high", "max")
	if r := m.Apply(ctx, p, 1); r[0].Outcome != apply.Pending {
		t.Fatalf("result %+v", r[0])
	}
	w.hold <- unix.EINVAL
	if err := m.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if last := m.ledger.all()[len(m.ledger.all())-1]; last.Err == "" {
		t.Errorf("the late error is not in the ledger: %+v", last)
	}
	// Enough memory free: written at once.
	m.Set(t, ctr, "memory.current", "0")
	done := make(chan struct{})
	go func() { w.hold <- nil; close(done) }()
	m.apply(t, p...)
	<-done
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12")
	m.start(t, ctr, 10, 11)
	p := plan.Plan{
		set(ctr, plan.OOMScoreAdj, plan.Int(-500)), set(ctr, plan.SchedPolicy, plan.Int(5)), set(ctr, plan.CoreSchedCookie, plan.Text("g")),
		set(ctr, plan.RDTMonGroup, plan.Text("m")), set(ctr, plan.RDTClass, plan.Text("BE")),
	}
	m.apply(t, p...)
	if m.tasks.oom[11] != -500 || m.tasks.sched[10] != 5 || m.tasks.cookie[11] != "g" || m.groups.class[10] != "BE" || m.groups.mon[11] != "BE/m" {
		t.Errorf("tasks %+v, groups %+v", m.tasks, m.groups)
	}
	if bad := m.Verify(p); len(bad) != 0 {
		t.Errorf("not in force: %v", bad)
	}
	for _, r := range m.apply(t, p...) {
		if r.Outcome != apply.Unchanged {
			t.Errorf("%s: %s the second time", r.Setting.Knob, r.Outcome)
		}
	}
	m.tasks.oom[10] = 3
	if bad := m.Verify(p); len(bad) != 1 || bad[0].Got != plan.Int(3) {
		t.Errorf("drift of one process: %v", bad)
	}
	none := plan.Plan{set(ctr, plan.CoreSchedCookie, plan.Text("")), set(ctr, plan.RDTClass, plan.Text(""))}
	if r := m.apply(t, none...); r[0].Outcome != apply.Written || r[1].Outcome != apply.Written {
		t.Errorf("out of the groups: %v", r)
	}
	if len(m.tasks.cookie) != 0 || m.groups.class[10] != "" || len(m.Verify(none)) != 0 {
		t.Errorf("still in groups: tasks %+v, groups %+v", m.tasks, m.groups)
	}
	m.SetProcs(t, ctr)
	if r := m.Apply(t.Context(), p, 1); r[0].Outcome != apply.Gone {
		t.Errorf("without processes: %+v", r[0])
	}
}

// An init system in a container moves every process to cgroups of its own: they are the container's as before, also when what was set is
// taken back. A pod's processes are its containers', each with its own settings.
func TestProcessesOfCgroupsBelow(t *testing.T) {
	t.Parallel()
	for _, kernel := range []string{"6.12", "v1"} {
		m := newMachine(t, kernel)
		m.start(t, ctr)
		m.Mkdir(t, ctr+"/init.scope")
		m.Mkdir(t, ctr+"/system.slice/cron.service")
		m.start(t, ctr+"/init.scope", 10)
		m.start(t, ctr+"/system.slice/cron.service", 11)
		p := plan.Plan{set(ctr, plan.OOMScoreAdj, plan.Int(-500)), set(ctr, plan.SchedPolicy, plan.Int(5))}
		m.apply(t, p...)
		if d := cmp.Diff([]map[int]int{{10: -500, 11: -500}, {10: 5, 11: 5}}, []map[int]int{m.tasks.oom, m.tasks.sched}); d != "" {
			t.Errorf("%s: set (-want +got):\n%s", kernel, d)
		}
		if bad := m.Verify(p); len(bad) != 0 {
			t.Errorf("%s: not in force: %v", kernel, bad)
		}
		m.Restore(t.Context(), m.ledger.all(), false)
		if d := cmp.Diff([]map[int]int{{10: 0, 11: 0}, {10: 0, 11: 0}}, []map[int]int{m.tasks.oom, m.tasks.sched}); d != "" {
			t.Errorf("%s: restored (-want +got):\n%s", kernel, d)
		}
		if r := m.Apply(t.Context(), plan.Plan{set(pod, plan.SchedPolicy, plan.Int(5))}, 1); r[0].Outcome != apply.Gone || m.tasks.sched[10] != 0 {
			t.Errorf("%s: a pod's own: %+v", kernel, r[0])
		}
	}
}

// An engine inside a container gives its processes scores and policies of their own, in cgroups of their own: they keep them, when the
// container's are set and when they are taken back. So it is where all are below, of which the first counts.
func TestProcessesBelowWithValuesOfTheirOwn(t *testing.T) {
	t.Parallel()
	for _, inside := range []bool{false, true} {
		m := newMachine(t, "6.12")
		first := ctr
		if inside {
			first = ctr + "/init.scope"
			m.start(t, ctr)
			m.Mkdir(t, first)
		}
		m.Mkdir(t, ctr+"/docker/one")
		m.start(t, first, 10)
		m.start(t, ctr+"/docker")
		m.start(t, ctr+"/docker/one", 11, 12)
		m.tasks.oom[11], m.tasks.sched[11] = 1000, 3
		p := plan.Plan{set(ctr, plan.OOMScoreAdj, plan.Int(-500)), set(ctr, plan.SchedPolicy, plan.Int(5))}
		have := func(what string, oom, sched map[int]int) {
			t.Helper()
			if d := cmp.Diff([]map[int]int{oom, sched}, []map[int]int{m.tasks.oom, m.tasks.sched}); d != "" {
				t.Errorf("all below %v, %s (-want +got):\n%s", inside, what, d)
			}
		}
		for range 2 {
			m.apply(t, p...)
			have("set", map[int]int{10: -500, 11: 1000, 12: -500}, map[int]int{10: 5, 11: 3, 12: 5})
			if bad := m.Verify(p); len(bad) != 0 {
				t.Errorf("all below %v: not in force: %v", inside, bad)
			}
		}
		m.tasks.sched[12] = 0 // as one that was forked before its parent was written to
		m.apply(t, p...)
		have("mended", map[int]int{10: -500, 11: 1000, 12: -500}, map[int]int{10: 5, 11: 3, 12: 5})
		m.Restore(t.Context(), m.ledger.all(), false)
		have("restored", map[int]int{10: 0, 11: 1000, 12: 0}, map[int]int{10: 0, 11: 3, 12: 0})
	}
}

// A process that has set its own OOM score keeps it, and so do those that it forks, while the others are given one, and when they give it
// back, whoever takes it back.
func TestOwnOOMScoresStay(t *testing.T) {
	t.Parallel()
	given := set(ctr, plan.OOMScoreAdj, plan.Int(943))
	given.Only = unit.Some(985)
	back := set(ctr, plan.OOMScoreAdj, plan.Int(985))
	back.Only = unit.Some(943)
	for name, takeBack := range map[string]func(m *machine){
		"undone":   func(m *machine) { m.apply(t, back) },
		"restored": func(m *machine) { m.Restore(t.Context(), m.ledger.all(), false) },
	} {
		m := newMachine(t, "6.12")
		m.start(t, ctr, 10, 11)
		m.tasks.oom[10], m.tasks.oom[11] = 985, 300
		m.apply(t, given)
		if d := cmp.Diff(map[int]int{10: 943, 11: 300}, m.tasks.oom); d != "" {
			t.Errorf("%s: given (-want +got):\n%s", name, d)
		}
		if bad := m.Verify(plan.Plan{given}); len(bad) != 0 {
			t.Errorf("%s: not in force: %v", name, bad)
		}
		m.start(t, ctr, 10, 11, 12, 13, 14)
		m.tasks.oom = map[int]int{10: 943, 11: 300, 12: 943, 13: 300, 14: 500} // forked from 10 and 11; the last one from 10, and has set its own
		if r := m.apply(t, given); r[0].Outcome != apply.Unchanged {
			t.Errorf("%s: %s the second time", name, r[0].Outcome)
		}
		takeBack(m)
		if d := cmp.Diff(map[int]int{10: 985, 11: 300, 12: 985, 13: 300, 14: 500}, m.tasks.oom); d != "" {
			t.Errorf("%s: (-want +got):\n%s", name, d)
		}
	}
}

// Who is forked after the list and before its parent is written to has what the parent had, and is found.
func TestOOMScoreOfWhoIsForkedMeanwhile(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12")
	m.start(t, ctr, 10)
	m.tasks.oom[10] = 943
	next := 10
	m.tasks.fork = func() { // from the one that is about to be written to; each generation once more
		if next++; next < 13 {
			m.SetProcs(t, ctr, 10, 11, 12)
			m.tasks.sched[next], m.tasks.oom[next] = 0, 943
		}
	}
	back := set(ctr, plan.OOMScoreAdj, plan.Int(985))
	back.Only = unit.Some(943)
	m.apply(t, back)
	if d := cmp.Diff(map[int]int{10: 985, 11: 985, 12: 985}, m.tasks.oom); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestSchemata(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12")
	m.Resctrl(t, true, true)
	m.Group(t, "BE")
	before := m.Snapshot(t)
	group := plan.Target{Level: plan.LevelGroup, Cgroup: "BE"}
	p := plan.Plan{{Target: group, Knob: plan.RDTSchemata, Key: "L3", Value: plan.Text("0=0000f;1=0000f")}, {Target: group, Knob: plan.RDTSchemata, Key: "MB", Value: plan.Text("0=50")}}
	m.apply(t, p...)
	if got, _ := m.groups.Schemata("BE"); got != "    MB:0=50;1=100\n    L3:0=0000f;1=0000f\n" {
		t.Errorf("schemata %q", got)
	}
	m.Log()
	m.apply(t, p...)
	same(t, m.Log())
	r := m.Apply(t.Context(), plan.Plan{{Target: group, Knob: plan.RDTSchemata, Key: "L2", Value: plan.Text("0=1")}}, 1)
	if !errors.Is(r[0].Err, apply.ErrUnsupported) {
		t.Errorf("L2: %+v", r[0])
	}
	restored(t, m, before)
}

func TestConcurrentPlans(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "v1")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 20 {
				q := int64(20000 + 1000*((i+n)%7))
				m.Apply(t.Context(), plan.Plan{set(ctr, plan.CPUQuota, plan.Int(q)), set(pod, plan.CPUQuota, plan.Int(q)), set(ctr2, plan.CPUBurst, plan.Int(n))}, uint64(n))
				m.Verify(plan.Plan{set(ctr, plan.CPUQuota, plan.Int(q))})
				if n%10 == 9 {
					if err := m.Forget(targetOf(ctr2)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for _, line := range m.Log() {
		if strings.Contains(line, "invalid argument") {
			t.Errorf("the kernel refused %s", line)
		}
	}
}

// A pod or container whose cgroup is not known is refused: an empty path is the root's, with every process in it.
func TestNothingIsWrittenToTheRoot(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"", "/", "//"} {
		m := newMachine(t, "6.12")
		for _, level := range []plan.Level{plan.LevelQoS, plan.LevelPod, plan.LevelContainer} {
			p := plan.Plan{
				{Target: plan.Target{Level: level, Cgroup: dir, Name: "lost"}, Knob: plan.MemoryLow, Value: plan.Int(1)},
				{Target: plan.Target{Level: level, Cgroup: dir, Name: "lost"}, Knob: plan.SchedPolicy, Value: plan.Int(5)},
			}
			for _, r := range m.Apply(t.Context(), p, 7) {
				if r.Outcome != apply.Failed || !errors.Is(r.Err, apply.ErrUnplaced) {
					t.Errorf("%s in %q: %s %v", level, dir, r.Outcome, r.Err)
				}
			}
			if bad := m.Verify(p); len(bad) != 2 || !errors.Is(bad[0].Err, apply.ErrUnplaced) || !errors.Is(bad[1].Err, apply.ErrUnplaced) {
				t.Errorf("%s in %q: proof %v", level, dir, bad)
			}
		}
		same(t, m.Log())
	}
}
