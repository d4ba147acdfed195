// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

func TestCompactKeepsOldestOriginalAndNewest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, "nri", Options{})
	for i := range 100 {
		orig := ""
		if i == 0 {
			orig = "1024"
		}
		appendAll(t, l, record("a", plan.CPUShares, i, orig, fmt.Sprint(i)), record("gone", plan.CPUShares, i, orig, fmt.Sprint(i)))
	}
	tried := record("a", plan.CPUShares, 200, "99", "666")
	failed := tried
	failed.Original, failed.Written, failed.Err = nil, nil, "EINVAL"
	gone := journal.Record{Time: t0.Add(300 * time.Second), Target: target("gone"), Via: journal.ViaGone}
	proof := record("a", plan.CPUShares, 201, "", "")
	proof.Via = journal.ViaProof
	var strayed [2]journal.Record
	for i, by := range []string{"someone", "systemd"} {
		strayed[i] = record("a", plan.CPUShares, 202+i, "", "")
		strayed[i].Written, strayed[i].Want, strayed[i].Via, strayed[i].Found, strayed[i].Source = nil, "99", journal.ViaDrift, "5", by
	}
	appendAll(t, l, tried, failed, proof, strayed[0], strayed[1], gone)
	before := l.Stats().Bytes
	if err := l.Compact(); err != nil {
		t.Fatal(err)
	}
	appendAll(t, l, record("b", plan.CPUShares, 400, "", "after"))
	rs := readAll(t, dir, 0)
	// The first of a, its last three that stood, the refusal with what it refused, the proof, the newest drift; and b.
	if len(rs) != 9 || l.Stats().Bytes >= before/10 || l.Stats().Compactions != 1 {
		t.Fatalf("%d records, %+v (before %d bytes)", len(rs), l.Stats(), before)
	}
	x := NewIndex(rs, nil)
	e := x.Entries()[0]
	if e.Target != target("a") || e.Original == nil || e.Original.Original[0] != "1024" || e.Done.Want != "99" || e.Value.Want != "666" || e.Proof == nil ||
		e.Drift == nil || e.Drift.Source != "systemd" || e.Drift.Found != "5" {
		t.Errorf("entry: %+v", e)
	}
}

// A compaction can be made to rest between any two lines, in each of its passes: what is open, what matters, the copy.
func TestCompactRests(t *testing.T) {
	t.Parallel()
	const records = 100
	l := open(t, t.TempDir(), "nri", Options{})
	for i := range records {
		appendAll(t, l, record(fmt.Sprint(i), plan.CPUShares, i, "1024", "2"))
	}
	steps := 0
	l.Pace(func() { steps++ })
	if err := l.Compact(); err != nil {
		t.Fatal(err)
	}
	if steps < 3*records {
		t.Errorf("%d rests in a compaction that reads %d records twice and keeps them", steps, records)
	}
}

// What systemd may have written over is kept in its place among our writes, the oldest and the newest, until a restore. It is no wish.
// Of two writes of one value the newer is kept, and the first of all.
func TestCompactKeepsBeside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, "nri", Options{})
	beside := func(at int, stood string) journal.Record {
		r := record("a", plan.MemoryOOMGroup, at, stood, "0")
		r.Via, r.Want = journal.ViaBeside, ""
		return r
	}
	appendAll(t, l, beside(0, "1"))
	if e := NewIndex(readAll(t, dir, 0), nil).Entries(); len(e) != 1 || e[0].Value != nil || e[0].Done != nil || e[0].Original != nil {
		t.Errorf("a wish: %+v", e)
	}
	appendAll(t, l, record("a", plan.MemoryOOMGroup, 1, "0", "1"), beside(2, "1"), record("a", plan.MemoryOOMGroup, 3, "1", "0"), beside(4, "1"), record("a", plan.MemoryOOMGroup, 5, "0", "1"))
	compacted := func() (at []int) {
		t.Helper()
		if err := l.Compact(); err != nil {
			t.Fatal(err)
		}
		for _, r := range readAll(t, dir, 0) {
			at = append(at, int(r.Time.Sub(t0)/time.Second))
		}
		return at
	}
	if got, want := compacted(), []int{0, 1, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("kept %v, want %v", got, want)
	}
	restored := record("a", plan.MemoryOOMGroup, 6, "0", "1")
	restored.Via = journal.ViaRestore
	appendAll(t, l, restored)
	if got, want := compacted(), []int{6}; !slices.Equal(got, want) {
		t.Errorf("kept %v after a restore, want %v", got, want)
	}
}

// A compaction that fails is told once, and stands in the error of a ledger that is full for it; once it goes well again there is room.
func TestACompactionThatFailsIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	told := make(chan error, 99)
	l := open(t, dir, "nri", Options{MaxBytes: 2 << 10, Failed: func(err error) { told <- err }})
	path := filepath.Join(Dir(dir), "nri.jsonl")
	aside := path + ".aside"
	if err := errors.Join(os.Rename(path, aside), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = l.Run(ctx) })
	fill := func(until func(error) bool) error {
		t.Helper()
		for i := range 20000 {
			if err := l.Append(record("a", plan.CPUShares, i, "1024", fmt.Sprint(i))); until(err) {
				return err
			}
			time.Sleep(100 * time.Microsecond) // leaves a CPU to Run
		}
		t.Fatal("not within 20,000 records")
		return nil
	}
	err := fill(func(err error) bool { return errors.Is(err, ErrFull) && err.Error() != ErrFull.Error() })
	if cause := <-told; !strings.Contains(err.Error(), cause.Error()) || len(told) > 0 {
		t.Errorf("full: %v; told %v and %d more", err, cause, len(told))
	}
	if err := os.Rename(aside, path); err != nil {
		t.Fatal(err)
	}
	fill(func(err error) bool { return err == nil })
	cancel()
	run.Wait()
}

func TestRunCompactsWhenTooLongAndAppendsGoOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, "nri", Options{MaxBytes: 20 << 10})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var run, wg sync.WaitGroup
	run.Go(func() { _ = l.Run(ctx) })
	for g := range 4 {
		wg.Go(func() {
			for i := range 300 {
				r := record(fmt.Sprint(g), plan.CPUShares, i, "1024", fmt.Sprint(i))
				for deadline := time.Now().Add(60 * time.Second); errors.Is(l.Append(r), ErrFull); time.Sleep(time.Millisecond) { // leaves a CPU to Run
					if time.Now().After(deadline) {
						t.Error("full and never compacted")
						return
					}
				}
			}
		})
	}
	wg.Wait()
	cancel()
	run.Wait()
	if l.Stats().Compactions == 0 || l.Stats().CompactionErr != nil {
		t.Fatalf("never compacted: %+v", l.Stats())
	}
	x := NewIndex(readAll(t, dir, 0), nil)
	if n := len(x.Entries()); n != 4 {
		t.Fatalf("%d entries", n)
	}
	for _, e := range x.Entries() {
		if e.Value.Want != "299" || !e.Original.Time.Equal(t0) {
			t.Errorf("%s: newest %s, original of %s", e.Target, e.Value.Want, e.Original.Time)
		}
	}
}

func TestGoneDropsWhatIsBelow(t *testing.T) {
	t.Parallel()
	pod := plan.Target{Level: plan.LevelPod, Cgroup: "/kubepods/pod1", Pod: "1"}
	inside := plan.Target{Level: plan.LevelContainer, Cgroup: "/kubepods/pod1/c", Pod: "1", Container: "c"}
	other := plan.Target{Level: plan.LevelPod, Cgroup: "/kubepods/pod10", Pod: "10"}
	var rs []journal.Record
	for _, tg := range []plan.Target{pod, inside, other} {
		rs = append(rs, journal.Record{Time: t0, Target: tg, Knob: "cpu.shares", Via: journal.ViaDirect})
	}
	rs = append(rs, journal.Record{Time: t0, Target: pod, Via: journal.ViaGone})
	es := NewIndex(rs, nil).Entries()
	if len(es) != 1 || es[0].Target != other {
		t.Errorf("left: %+v", es)
	}
}

// What somebody else has written since is the original from then on, and compaction keeps the newest of it.
func TestCompactKeepsWhatIsTheirs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, "nri", Options{})
	for i := range 9 {
		r := record("a", plan.CPUQuota, i, fmt.Sprint(i), "500")
		r.Theirs = i == 3 || i == 5
		appendAll(t, l, r)
	}
	if err := l.Compact(); err != nil {
		t.Fatal(err)
	}
	rs := readAll(t, dir, 0)
	if len(rs) != 3 || rs[0].Original[0] != "0" || rs[1].Original[0] != "5" || !rs[1].Theirs || rs[2].Original[0] != "8" {
		t.Errorf("kept %+v", rs)
	}
	if e := NewIndex(rs, nil).Entries()[0]; e.Original.Original[0] != "5" {
		t.Errorf("original %+v", e.Original)
	}
}

// Events are about pods that nobody says are gone: without a bound the file would grow with every pod that ever was.
func TestCompactLeavesTheNewestOnly(t *testing.T) {
	t.Parallel()
	for newest, want := range map[int]int{0: 100, 10: 10, 200: 100} {
		dir := t.TempDir()
		l := open(t, dir, "koordlet", Options{Newest: newest})
		for i := range 100 {
			r := record(fmt.Sprint("p", i), plan.CPUQuota, i, "", "")
			r.Knob, r.Written, r.Via = "eviction", nil, journal.ViaEvent
			appendAll(t, l, r)
		}
		if err := l.Compact(); err != nil {
			t.Fatal(err)
		}
		rs := readAll(t, dir, 0)
		if len(rs) != want || rs[0].Target.Pod != fmt.Sprint("uid-p", 100-want) || rs[want-1].Target.Pod != "uid-p99" {
			t.Errorf("of 100 with Newest %d: %d from %s on", newest, len(rs), rs[0].Target.Pod)
		}
		appendAll(t, l, record("late", plan.CPUQuota, 100, "1", "2"))
		if rs := readAll(t, dir, 0); len(rs) != want+1 {
			t.Errorf("afterwards: %d", len(rs))
		}
	}
}

// Settings of processes have a file per process: compaction keeps every file's first content.
func TestCompactKeepsOriginalsOfEveryFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, "nri", Options{})
	for i := range 9 {
		r := record("a", plan.OOMScoreAdj, i, fmt.Sprint(i), "500")
		r.Files = []string{fmt.Sprintf("/proc/%d/oom_score_adj", i/2)}
		appendAll(t, l, r)
	}
	if err := l.Compact(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range readAll(t, dir, 0) {
		got = append(got, r.Files[0]+"="+r.Original[0])
	}
	want := []string{"/proc/0/oom_score_adj=0", "/proc/1/oom_score_adj=2", "/proc/2/oom_score_adj=4", "/proc/3/oom_score_adj=6", "/proc/4/oom_score_adj=8"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A write that was refused has never stood: index and compaction go on with the one before it, and keep what it took the place of.
func TestCompactAfterARefusedWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, "nri", Options{})
	third := record("a", plan.CPUShares, 3, "200", "300")
	refused := third
	refused.Time, refused.Original, refused.Written, refused.Err = t0.Add(4*time.Second), nil, nil, "EBUSY"
	other := refused
	other.Want = "250" // a late one's, which is not the newest any more
	appendAll(t, l, record("a", plan.CPUShares, 0, "1024", "100"), record("a", plan.CPUShares, 1, "100", "200"), third, refused, other)
	for _, when := range []string{"refused", "compacted", "compacted twice"} {
		rs := readAll(t, dir, 0)
		e := NewIndex(rs, nil).Entries()[0]
		if e.Original == nil || e.Original.Original[0] != "1024" || e.Done == nil || e.Done.Want != "200" || e.Value.Err != "EBUSY" {
			t.Errorf("%s: original %+v, done %+v, value %+v", when, e.Original, e.Done, e.Value)
		}
		if !slices.ContainsFunc(rs, func(r journal.Record) bool { return len(r.Written) > 0 && r.Written[0] == "200" }) {
			t.Errorf("%s: what stands is in no record: %+v", when, rs)
		}
		if err := l.Compact(); err != nil {
			t.Fatal(err)
		}
	}
}
