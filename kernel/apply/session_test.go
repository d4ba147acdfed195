// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// descriptors counts what this process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// meddler writes a value and then another one over it, as a second agent might before the proof.
type meddler struct{ over string }

func (m meddler) Write(path, value string, _ bool) error {
	if err := root.Write(path, value); err != nil || m.over == "" {
		return err
	}
	return root.Write(path, m.over)
}

// What Start has written it reads again from the kernel: a value that somebody has changed in between is no proof.
func TestStartReadsTheKernelAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		over string
		want string // what stands there instead
	}{
		"as written": {}, "changed in between": {over: "1024", want: "1024"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "v1", func(o *apply.Options) { o.Writer = meddler{tc.over} })
			p := plan.Plan{set(ctr, plan.CPUShares, plan.Int(512))}
			results, bad, release := m.Start(t.Context(), p[0].Target, p, p, 1)
			defer release()
			if len(results) != 1 || results[0].Outcome != apply.Written {
				t.Errorf("results %+v", results)
			}
			if tc.want == "" && bad != nil || tc.want != "" && (len(bad) != 1 || bad[0].Got.String() != tc.want) {
				t.Errorf("proof says %v, want %q", bad, tc.want)
			}
		})
	}
}

// Start does on a real kernel what Apply and Verify do one after the other, and gives every descriptor back but
// the burst's.
func TestStartRealV1(t *testing.T) {
	r := realV1(t)
	l := &ledger{}
	a, err := apply.New(apply.Options{FS: r.fs, Roots: root.Default(), Journal: l, KeepBursts: true})
	if err != nil {
		t.Fatal(err)
	}
	before, open := r.snapshot(t), descriptors(t)
	all := plan.Plan{r.ctr(plan.CPUQuota, 50000), r.ctr(plan.CPUBurst, 90000), r.ctr(plan.MemoryLimit, 1<<26), r.ctr(plan.CPUIdle, 1)}
	results, bad, release := a.Start(t.Context(), all[0].Target, all, all, 1)
	for i := range results {
		if results[i].Outcome != apply.Written {
			t.Errorf("%s: %s, %v", results[i].Setting.Knob, results[i].Outcome, results[i].Err)
		}
	}
	// The burst is cut to the quota that the same plan has written, which is what the kernel accepts.
	if len(bad) != 1 || bad[0].Setting.Knob != plan.CPUBurst || bad[0].Got != plan.Int(50000) {
		t.Errorf("proof says %v", bad)
	}
	if descriptors(t) == open {
		t.Error("nothing has stayed open")
	}
	release()
	if n := descriptors(t); n != open+1 {
		t.Errorf("%d descriptors, before it were %d: want the burst's alone to be kept", n, open)
	}
	inode, err := root.Inode(r.dirs[2])
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range l.all() {
		if rec.Knob == plan.CPUQuota.String() && (rec.Inode != inode || rec.Original[0] != "-1") {
			t.Errorf("record %+v, want inode %d", rec, inode)
		}
	}
	for _, s := range a.Restore(t.Context(), l.all(), false) {
		if s.Err != nil {
			t.Errorf("restore %+v", s)
		}
	}
	if after := r.snapshot(t); !equal(before, after) {
		t.Errorf("not byte-identical: %v, %v", before, after)
	}
	if err := a.Forget(all[0].Target); err != nil || descriptors(t) != open {
		t.Errorf("forgotten: %d descriptors, before it were %d; %v", descriptors(t), open, err)
	}
}

func equal(x, y map[string]string) bool {
	for k, v := range x {
		if y[k] != v {
			return false
		}
	}
	return len(x) == len(y)
}

// A pass that breaks off gives its descriptors back, too.
func TestStartThatPanics(t *testing.T) {
	m := newMachine(t, "v1", func(o *apply.Options) { o.Journal = brokenJournal{} })
	open := descriptors(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		p := plan.Plan{set(ctr, plan.CPUShares, plan.Int(512))}
		m.Start(t.Context(), p[0].Target, p, p, 1)
	}()
	if n := descriptors(t); n != open {
		t.Errorf("%d descriptors, before it were %d", n, open)
	}
	if r := m.Verify(plan.Plan{set(ctr, plan.CPUShares, plan.Int(1024))}); r != nil {
		t.Errorf("afterwards: %v", r)
	}
}

type brokenJournal struct{}

func (brokenJournal) Append(...journal.Record) error { panic("broken") }

// BenchmarkStartRealV1 is what StartContainer asks of the kernel, on this machine's cgroup v1: "LS" writes a burst and
// proves it, "BE" proves three values that runc has written. For the number of system calls compare two lengths of
//
//	strace -fc -e trace=openat,pread64,pwrite64,read,write,close,fstat,newfstatat \
//	    apply.test -test.run - -test.bench StartRealV1/LS -test.benchtime 1000x
func BenchmarkStartRealV1(b *testing.B) {
	r := realV1(b)
	a, err := apply.New(apply.Options{FS: r.fs, Roots: root.Default(), Journal: discard{}})
	if err != nil {
		b.Fatal(err)
	}
	given := plan.Plan{r.ctr(plan.CPUShares, 512), r.ctr(plan.CPUQuota, 90000), r.ctr(plan.MemoryLimit, 1<<26)}
	for _, res := range a.Apply(b.Context(), given, 1) {
		if res.Err != nil {
			b.Fatal(res.Err)
		}
	}
	b.Run("LS", func(b *testing.B) {
		b.ReportAllocs()
		for n := int64(1); b.Loop(); n++ {
			burst := plan.Plan{r.ctr(plan.CPUBurst, 1000*(1+n%80))}
			if _, bad, release := a.Start(b.Context(), burst[0].Target, burst, burst, 1); bad == nil {
				release()
				continue
			}
			b.Fatal("not proven: " + strconv.FormatInt(n, 10))
		}
	})
	b.Run("BE", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, bad, release := a.Start(b.Context(), given[0].Target, nil, given, 1)
			if release(); bad != nil {
				b.Fatal(bad)
			}
		}
	})
}

type discard struct{}

func (discard) Append(...journal.Record) error { return nil }
