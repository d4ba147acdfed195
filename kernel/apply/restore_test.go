// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"math/rand/v2"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// restored restores everything and compares with the snapshot.
func restored(t *testing.T, m *machine, before map[string]string) {
	t.Helper()
	for _, s := range m.Restore(t.Context(), m.ledger.all(), false) {
		if s.Err != nil {
			t.Errorf("restore %s of %s: %v", s.Knob, s.Target, s.Err)
		}
	}
	if diff := kerneltest.Diff(before, m.Snapshot(t)); diff != "" {
		t.Errorf("not byte-identical:\n%s", diff)
	}
}

var kernels = []string{"6.1", "6.12", "7.2", "v1", "anolis", "anolis-v2"}

// TestRestoreIsByteIdentical: random sequences of plans over every level, then restore, on every kernel.
func TestRestoreIsByteIdentical(t *testing.T) {
	t.Parallel()
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, kernel)
			if m.Version == node.CgroupV2 {
				m.Set(t, pod, "cpu.weight", "39")
			} else {
				m.Set(t, ctr, "cpu.shares", "512")
			}
			before := m.Snapshot(t)
			for seed := range uint64(rounds(t)) { // one ledger for all rounds: what was restored is over
				rnd := rand.New(rand.NewPCG(seed, 1))
				for range 1 + rnd.IntN(4) {
					m.Apply(t.Context(), randomPlan(rnd), seed) // some values cannot be set on some kernels
				}
				if rnd.IntN(2) == 0 {
					m.Restore(t.Context(), m.ledger.all(), true)
				}
				if rnd.IntN(3) == 0 {
					m.Applier = m.applier(t) // another program, which has nothing but the ledger
				}
				restored(t, m, before)
				for _, s := range m.Restore(t.Context(), m.ledger.all(), false) {
					if s.Action == apply.ActWrite {
						t.Errorf("restored twice: %+v", s)
					}
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// rounds of a random test: few on the inner loop.
func rounds(t *testing.T) int {
	t.Helper()
	if testing.Short() {
		return 4
	}
	return 12
}

func randomPlan(rnd *rand.Rand) plan.Plan {
	lists := []string{"0-3", "2-5", "4-7", "0-7", "3", "1,6"}
	numbers := map[plan.Knob][]int64{
		plan.CPUShares: {2, 512, 1024, 4096}, plan.CPUQuota: {-1, 20000, 50000, 400000}, plan.CPUPeriod: {50000, 100000}, plan.CPUBurst: {0, 10000, 30000},
		plan.CPUIdle: {0, 1}, plan.CPUBvt: {-1, 2}, plan.MemoryLimit: {-1, 1 << 20, 1 << 30}, plan.MemoryMin: {0, 4096, 1 << 20}, plan.MemoryLow: {0, 8192},
		plan.MemoryHigh: {-1, 1 << 21}, plan.MemoryOOMGroup: {0, 1}, plan.MemoryWmarkRatio: {0, 95}, plan.MemoryPriority: {0, 12},
	}
	var p plan.Plan
	for _, cg := range []string{all, qos, pod, ctr, ctr2} {
		for k := plan.KnobNone + 1; k < plan.NumKnobs; k++ {
			if vs := numbers[k]; vs != nil && rnd.IntN(2) == 0 {
				p = append(p, set(cg, k, plan.Int(vs[rnd.IntN(len(vs))])))
			}
		}
		if rnd.IntN(2) == 0 {
			p = append(p, set(cg, plan.CPUSetCPUs, plan.Text(lists[rnd.IntN(len(lists))])))
		}
		for _, k := range []plan.Knob{plan.IOReadBPS, plan.IOWriteIOPS, plan.IOLatency, plan.IOWeight} {
			if rnd.IntN(3) == 0 {
				p = append(p, keyed(cg, k, "8:0", plan.Int(1+rnd.Int64N(99))))
			}
		}
	}
	rnd.Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] })
	return p
}

func TestRestoreLeavesForeignValues(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12")
	m.apply(t, set(pod, plan.MemoryHigh, plan.Int(1<<20)), set(pod, plan.MemoryLow, plan.Int(4096)), set(qos, plan.MemoryMin, plan.Int(4096)))
	m.Set(t, pod, "memory.high", "2097152") // somebody else
	records := m.ledger.all()
	for i := range records {
		if records[i].Knob == "memory.low" {
			records[i].Boot = "another boot"
		}
	}
	m.Rmdir(t, qos)
	m.Mkdir(t, pod)
	m.Set(t, pod, "memory.high", "2097152")
	steps := m.Restore(t.Context(), records, false)
	for _, s := range steps {
		if s.Action == apply.ActWrite {
			t.Errorf("restored %+v", s)
		}
	}
	m = newMachine(t, "6.12")
	m.apply(t, set(pod, plan.MemoryHigh, plan.Int(1<<20)))
	m.Set(t, pod, "memory.high", "2097152")
	steps = m.Restore(t.Context(), m.ledger.all(), false)
	if len(steps) != 1 || steps[0].Action != apply.ActKeep || steps[0].From != "2097152" || steps[0].Reason != "no longer our value" {
		t.Errorf("steps %+v", steps)
	}
}

// between has something else happen, once, before the first write of ours.
type between struct {
	apply.Writer
	first func()
}

func (b *between) Write(path, value string, nonblock bool) error {
	if f := b.first; f != nil {
		b.first = nil
		f()
	}
	return b.Writer.Write(path, value, nonblock)
}

// Who writes between the decision to give a value back and its turn is not written over, be it a kubelet by a resize; what the restore's own steps
// have changed is, and what the runtime writes of ours.
func TestRestoreLooksAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		kernel, cgroup, file, between string
		knob                          plan.Knob
		reason                        string // "" where it is restored
	}{
		"v1":                      {"v1", ctr, "cpu.shares", "512", plan.CPUShares, "no longer our value"},
		"v1, to the original":     {"v1", ctr, "cpu.shares", "1024", plan.CPUShares, "original already there"},
		"v1, a list that moves":   {"v1", pod, "cpuset.cpus", "0-6", plan.CPUSetCPUs, "no longer our value"},
		"v1, of the record":       {"v1", ctr, "memory.limit_in_bytes", "2097152", plan.MemoryLimit, ""},
		"v1, beside the record":   {"v1", ctr, "memory.limit_in_bytes", "4194304", plan.MemoryLimit, "no longer our value"},
		"6.12":                    {"6.12", ctr, "cpu.weight", "77", plan.CPUShares, "no longer our value"},
		"6.12, to the original":   {"6.12", ctr, "cpu.weight", "100", plan.CPUShares, "original already there"},
		"6.12, of the record":     {"6.12", ctr, "memory.max", "2097152", plan.MemoryLimit, ""},
		"6.12, beside the record": {"6.12", ctr, "memory.max", "4194304", plan.MemoryLimit, "no longer our value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, tc.kernel)
			if m.Version == node.CgroupV1 {
				for _, cg := range []string{ctr2, ctr, pod} { // lists that move take two steps
					m.Set(t, cg, "cpuset.cpus", "2-5")
				}
			}
			before, original := m.Snapshot(t), m.Get(t, tc.cgroup, tc.file)
			m.apply(t, set(pod, plan.CPUSetCPUs, plan.Text("0-3")), set(ctr, plan.CPUSetCPUs, plan.Text("0-3")), set(ctr2, plan.CPUSetCPUs, plan.Text("1")),
				set(ctr, plan.CPUQuota, plan.Int(50000)), set(ctr, plan.CPUPeriod, plan.Int(50000)), set(ctr, plan.CPUBurst, plan.Int(10000)),
				set(ctr, plan.CPUShares, plan.Int(2048)), set(ctr, plan.MemoryLimit, plan.Int(1<<20)))
			m.apply(t, set(pod, plan.CPUSetCPUs, plan.Text("0-1")), set(ctr, plan.CPUSetCPUs, plan.Text("0-1"))) // both steps of the way back are new
			records := append(m.ledger.all(), journal.Record{
				Boot: kerneltest.BootID, Target: targetOf(ctr), Knob: plan.MemoryLimit.String(), Want: "2097152", Base: "-1", Via: journal.ViaRuntime,
			})
			w := &between{Writer: m.Tree, first: func() { m.Set(t, tc.cgroup, tc.file, tc.between) }}
			again := m.applier(t, func(o *apply.Options) { o.Writer = w })
			n := len(m.ledger.all())
			for _, s := range again.Restore(t.Context(), records, false) {
				if s.Err != nil {
					t.Errorf("%s of %s: %v", s.Knob, s.Target, s.Err)
				}
				if s.Knob != tc.knob || s.Target.Cgroup != tc.cgroup {
					continue
				}
				if kept := tc.reason != ""; kept != (s.Action == apply.ActKeep) || kept && (s.Reason != tc.reason || len(s.To) > 0 || s.From != tc.between) {
					t.Errorf("step %+v, want it left: %s", s, tc.reason)
				}
				if s.Recorded != nil && (s.Recorded.Back.Value.String() == tc.between) != (tc.reason == "no longer our value") {
					t.Errorf("the runtime's record is to be %s", s.Recorded.Back.Value)
				}
			}
			recorded := false
			for _, r := range m.ledger.all()[n:] {
				recorded = recorded || r.Knob == tc.knob.String() && r.Target.Cgroup == tc.cgroup
			}
			if got := m.Get(t, tc.cgroup, tc.file); recorded != (tc.reason == "") || (got == tc.between) != (tc.reason != "") {
				t.Errorf("recorded: %t, and %s = %s", recorded, tc.file, got)
			}
			if m.Set(t, tc.cgroup, tc.file, original); tc.knob == plan.MemoryLimit {
				return // memory.memsw stays with a limit that is left
			}
			if diff := kerneltest.Diff(before, m.Snapshot(t)); diff != "" {
				t.Errorf("what nobody else wrote is not byte-identical:\n%s", diff)
			}
		})
	}
}

// A weight that somebody else has set between two of ours is what a restore returns to, also where cpu.idle, which goes before it, has put back
// what stood before all of that.
func TestRestoreOfAWeightBesideIdle(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12")
	m.apply(t, set(ctr, plan.CPUShares, plan.Int(2048)))
	m.Set(t, ctr, "cpu.weight", "50")
	m.apply(t, set(ctr, plan.CPUShares, plan.Int(2)))
	m.apply(t, set(ctr, plan.CPUIdle, plan.Int(1)))
	for _, s := range m.applier(t).Restore(t.Context(), m.ledger.all(), false) {
		if s.Err != nil || s.Action != apply.ActWrite {
			t.Errorf("step %+v", s)
		}
	}
	if idle, weight := m.Get(t, ctr, "cpu.idle"), m.Get(t, ctr, "cpu.weight"); idle != "0" || weight != "50" {
		t.Errorf("cpu.idle is %s, cpu.weight %s", idle, weight)
	}
}

func TestRestoreDryRun(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12")
	m.apply(t, set(pod, plan.MemoryHigh, plan.Int(1<<20)))
	before, n := m.Snapshot(t), len(m.ledger.all())
	steps := m.Restore(t.Context(), m.ledger.all(), true)
	if len(steps) != 1 || steps[0].Action != apply.ActWrite || steps[0].From != "1048576" || steps[0].To[0] != "max" {
		t.Errorf("steps %+v", steps)
	}
	if kerneltest.Diff(before, m.Snapshot(t)) != "" || len(m.ledger.all()) != n {
		t.Error("a dry run has changed something")
	}
}

// TestRestoreAfterFailure: a write that was recorded and then refused is not ours.
func TestRestoreAfterFailure(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "v1")
	m.Set(t, ctr, "cpuset.cpus", "0-3")
	before := m.Snapshot(t)
	r := m.Apply(t.Context(), plan.Plan{set(pod, plan.CPUSetCPUs, plan.Text("0-1"))}, 1)
	if r[0].Outcome != apply.Failed {
		t.Fatalf("result %+v", r[0])
	}
	restored(t, m, before)
	same(t, m.ledger.lines(0), "direct cpuset.cpus 0-7→0-1", "direct cpuset.cpus → failed")
}

// TestRestoreOfRuntimeFields: the runtime keeps our value in its specification, so the widest equivalent is written.
func TestRestoreOfRuntimeFields(t *testing.T) {
	t.Parallel()
	fields := []struct {
		knob         plan.Knob
		file1, file2 string
		in1, in2     string
		want, base   string
		out1, out2   string
	}{
		{plan.MemoryHigh, "", "memory.high", "", "1048576", "1048576", "", "", "max"},
		{plan.MemoryMin, "", "memory.min", "", "4096", "4096", "", "", "0"},
		{plan.CPUBurst, "cpu.cfs_burst_us", "cpu.max.burst", "10000", "10000", "10000", "", "0", "0"},
		{plan.CPUSetCPUs, "cpuset.cpus", "cpuset.cpus", "2-3", "2-3", "2-3", "", "0-5", ""},
		{plan.CPUShares, "cpu.shares", "cpu.weight", "512", "59", "512", "1024", "1024", "100"},
		{plan.MemoryLimit, "memory.limit_in_bytes", "memory.max", "8192", "8192", "8192", "16384", "16384", "16384"},
		{plan.CPUQuota, "cpu.cfs_quota_us", "cpu.max", "60000", "60000 100000", "60000", "50000", "50000", "50000 100000"},
	}
	for _, kernel := range []string{"v1", "6.12"} {
		m := newMachine(t, kernel)
		m.Set(t, pod, "cpuset.cpus", "0-5")
		for _, f := range fields {
			file, in, out := f.file2, f.in2, f.out2
			if kernel == "v1" {
				file, in, out = f.file1, f.in1, f.out1
			}
			if file == "" {
				continue
			}
			m.Set(t, ctr, file, in)
			r := journal.Record{Boot: kerneltest.BootID, Target: targetOf(ctr), Knob: f.knob.String(), Want: f.want, Base: f.base, Via: journal.ViaRuntime}
			steps := m.Restore(t.Context(), []journal.Record{r}, false)
			if got := m.Get(t, ctr, file); got != out || len(steps) != 1 || steps[0].Err != nil {
				t.Errorf("%s %s: %q → %q, want %q; %+v", kernel, f.knob, in, got, out, steps)
			}
		}
	}
	m := newMachine(t, "6.12")
	m.Set(t, ctr, "cpu.weight", "100")
	for _, r := range []journal.Record{
		{Knob: plan.Env.String(), Key: "A"}, {Knob: plan.Device.String(), Key: "/dev/x"}, {Knob: plan.CPUShares.String(), Want: "1024"},
	} {
		r.Boot, r.Target, r.Via = kerneltest.BootID, targetOf(ctr), journal.ViaRuntime
		if s := m.Restore(t.Context(), []journal.Record{r}, false); len(s) != 1 || s[0].Action != apply.ActRecreate || s[0].Err != nil {
			t.Errorf("%s: %+v", r.Knob, s)
		}
		r.Target = targetOf(ctr + "-that-has-ended")
		if s := m.Restore(t.Context(), []journal.Record{r}, false); len(s) != 0 {
			t.Errorf("%s of a container that is gone: %+v", r.Knob, s)
		}
	}
}

// What only a vendor's kernel has is given back as well: as a group has it where nobody has written to it.
func TestRestoreOfAVendorsRuntimeFields(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "anolis-v2")
	before := m.Snapshot(t)
	var records []journal.Record
	for _, f := range []struct {
		knob       plan.Knob
		file, want string
	}{
		{plan.MemoryWmarkRatio, "memory.wmark_ratio", "95"}, {plan.MemoryWmarkScale, "memory.wmark_scale_factor", "20"},
		{plan.MemoryWmarkMinAdj, "memory.wmark_min_adj", "-25"}, {plan.MemoryPriority, "memory.priority", "3"},
		{plan.MemoryUsePriorityOOM, "memory.use_priority_oom", "1"}, {plan.PageCacheEnable, "memory.pagecache_limit.enable", "1"},
	} {
		m.Set(t, ctr, f.file, f.want)
		records = append(records, journal.Record{Boot: kerneltest.BootID, Target: targetOf(ctr), Knob: f.knob.String(), Want: f.want, Via: journal.ViaRuntime})
	}
	for _, s := range m.Restore(t.Context(), records, false) {
		if s.Err != nil || s.Action != apply.ActWrite {
			t.Errorf("%+v", s)
		}
	}
	if d := kerneltest.Diff(before, m.Snapshot(t)); d != "" {
		t.Error(d)
	}
}

func TestRestoreProcesses(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12")
	m.start(t, ctr, 10, 11)
	m.tasks.oom[10], m.tasks.oom[11] = 100, 200
	m.apply(t, set(ctr, plan.OOMScoreAdj, plan.Int(-5)), set(ctr, plan.SchedPolicy, plan.Int(5)), set(ctr, plan.CoreSchedCookie, plan.Text("g")),
		set(ctr, plan.RDTClass, plan.Text("BE")), set(ctr, plan.RDTMonGroup, plan.Text("m")))
	m.start(t, ctr, 10, 11, 12) // 12 was forked from 10 with what it had then
	m.tasks.oom = map[int]int{10: -5, 11: -5, 12: -5}
	m.tasks.sched[10] = 1 // somebody else
	for _, s := range m.Restore(t.Context(), m.ledger.all(), false) {
		if s.Err != nil {
			t.Errorf("%+v", s)
		}
	}
	if o := m.tasks.oom; o[10] != 100 || o[11] != 200 || o[12] != 100 {
		t.Errorf("oom %v", o)
	}
	if m.tasks.sched[10] != 1 || m.tasks.sched[11] != 0 || len(m.tasks.cookie) != 0 || m.groups.class[10] != "" {
		t.Errorf("tasks %+v, groups %+v", m.tasks, m.groups)
	}
}
