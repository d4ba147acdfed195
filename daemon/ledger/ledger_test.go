// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var t0 = time.Date(2026, 5, 1, 12, 0, 0, 123456789, time.UTC)

func target(name string) plan.Target {
	return plan.Target{
		Level: plan.LevelContainer, Cgroup: "/kubepods.slice/" + name, Pod: "uid-" + name, Container: "id-" + name,
		Name: "default/" + name + "/app",
	}
}

func record(name string, k plan.Knob, at int, orig, wrote string) journal.Record {
	r := journal.Record{
		Time: t0.Add(time.Duration(at) * time.Second), Boot: "b1", Inode: 42, Target: target(name), Knob: k.String(),
		Files: []string{"/sys/fs/cgroup/kubepods.slice/" + name + "/f"}, Written: []string{wrote}, Want: wrote,
		Owner: "batch", Reason: "batch-cpu", Via: journal.ViaDirect, Gen: 7,
	}
	if orig != "" {
		r.Original = []string{orig}
	}
	return r
}

func open(t *testing.T, dir, writer string, o Options) *Ledger {
	t.Helper()
	l, err := Open(dir, writer, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func appendAll(t *testing.T, l *Ledger, rs ...journal.Record) {
	t.Helper()
	if err := l.Append(rs...); err != nil {
		t.Fatal(err)
	}
}

func readAll(t *testing.T, dir string, wantTorn int) []journal.Record {
	t.Helper()
	rs, torn, err := ReadAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	if torn != wantTorn {
		t.Errorf("torn lines: got %d, want %d", torn, wantTorn)
	}
	return unstamped(t, rs)
}

// unstamped demands that the ledger has stamped all records with the machine's clock, and leaves that out.
func unstamped(t *testing.T, rs []journal.Record) []journal.Record {
	t.Helper()
	for i := range rs {
		if rs[i].Up == 0 {
			t.Errorf("record %d has no time since boot", i)
		}
		rs[i].Up = 0
	}
	return rs
}

func TestAppendReadsBackEqual(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, "nri", Options{})
	want := []journal.Record{record("a", plan.CPUShares, 0, "1024\n", "512"), record("b", plan.Env, 1, "", "x")}
	want[1].Key, want[1].Base, want[1].Err, want[1].Reason = "NVIDIA_VISIBLE_DEVICES", "2", "EINVAL", "\"quoted\" \\ \x01 \t ü \u2028"
	appendAll(t, l, want...)
	if d := cmp.Diff(want, readAll(t, dir, 0)); d != "" {
		t.Error(d)
	}
	for path, mode := range map[string]os.FileMode{Dir(dir): 0o700, filepath.Join(Dir(dir), "nri.jsonl"): 0o600} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: mode %v, %v, want %v", path, st.Mode().Perm(), err, mode)
		}
	}
}

// What several writers have written is in the order of writing, whatever the time of day was; of other boots, it has nothing else.
func TestWritersMergeByTimeAndKeepTheirOwnOrder(t *testing.T) {
	t.Parallel()
	of := func(boot, want string, at int) journal.Record {
		r := record("a", plan.CPUQuota, at, "", want)
		r.Boot = boot
		return r
	}
	for name, tc := range map[string]struct {
		boot string // of the second writer's record
		want []string
	}{
		"one boot":   {"b1", []string{"1", "2", "r", "3"}},
		"other boot": {"b0", []string{"1", "r", "2", "3"}},
	} {
		dir := t.TempDir()
		a, b := open(t, dir, "nri", Options{}), open(t, dir, "koordctl", Options{})
		// The clock is set forward before the second record, and back before the third.
		appendAll(t, a, of("b1", "1", 1), of("b1", "2", 3600))
		appendAll(t, b, of(tc.boot, "r", 5))
		appendAll(t, a, of("b1", "3", 6))
		var got []string
		for _, r := range readAll(t, dir, 0) {
			got = append(got, r.Want)
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// A kill may cut the file at any byte: every record whose line is whole survives, and the next life's records too.
func TestCutAtEveryByte(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, "nri", Options{})
	appendAll(t, l, record("a", plan.CPUShares, 0, "1024", "512"), record("b", plan.CPUShares, 1, "1024", "2"))
	path := filepath.Join(Dir(dir), "nri.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	firstLine := bytes.IndexByte(whole, '\n')
	for cut := range len(whole) {
		dir := t.TempDir()
		if err := os.MkdirAll(Dir(dir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(Dir(dir), "nri.jsonl"), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(dir, "nri", Options{})
		if err != nil {
			t.Fatal(err)
		}
		appendAll(t, l, record("c", plan.CPUShares, 2, "", "9"))
		_ = l.Close()
		rs, torn, err := ReadAll(dir)
		if err != nil {
			t.Fatal(err)
		}
		want := 1
		if cut >= firstLine {
			want++
		}
		if cut >= len(whole)-1 {
			want++
		}
		if len(rs) != want || rs[len(rs)-1].Want != "9" || torn > 1 {
			t.Fatalf("cut at %d of %d: %d records, %d torn, want %d records", cut, len(whole), len(rs), torn, want)
		}
	}
}

func TestReusedPathForgetsTheOldCgroup(t *testing.T) {
	t.Parallel()
	first, second := record("a", plan.CPUShares, 0, "1024", "512"), record("a", plan.CPUShares, 1, "2048", "2")
	second.Inode = 43
	x := NewIndex([]journal.Record{first, second}, nil)
	if o := x.Entries()[0].Original; o.Original[0] != "2048" {
		t.Errorf("original %v", o.Original)
	}
}

func TestFullAndClosedAndBadNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, "nri", Options{MaxBytes: 100})
	var err error
	for range 20 {
		err = l.Append(record("a", plan.CPUShares, 0, "", "1"))
	}
	if !errors.Is(err, ErrFull) {
		t.Errorf("full: %v", err)
	}
	if err := l.Compact(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(record("a", plan.CPUShares, 0, "", "1")); err != nil {
		t.Errorf("after compaction: %v", err)
	}
	huge := record("a", plan.CPUShares, 0, "", strings.Repeat("x", maxLine))
	if err := l.Append(huge, record("a", plan.CPUShares, 0, "", "kept")); !errors.Is(err, ErrTooLong) {
		t.Errorf("too long: %v", err)
	}
	rs := readAll(t, dir, 0)
	if rs[len(rs)-1].Want != "kept" {
		t.Error("the rest of a batch with a record too long is lost")
	}
	_ = l.Close()
	if err := l.Append(record("a", plan.CPUShares, 0, "", "1")); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	for _, name := range []string{"", "../x", "A", "a/b", ".x"} {
		if _, err := Open(dir, name, Options{}); err == nil {
			t.Errorf("writer %q accepted", name)
		}
	}
}

func TestRemovedDirectoryIsMadeAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, "nri", Options{})
	appendAll(t, l, record("a", plan.CPUShares, 0, "", "1"))
	if err := os.RemoveAll(Dir(dir)); err != nil {
		t.Fatal(err)
	}
	for _, removed := range []bool{true, false} {
		if again, err := l.Look(); err != nil || again != removed { // for who appends nothing
			t.Fatalf("made anew: %t, %v", again, err)
		}
	}
	if rs := readAll(t, dir, 0); len(rs) != 1 {
		t.Errorf("%+v", rs)
	}
	if err := os.RemoveAll(Dir(dir)); err != nil {
		t.Fatal(err)
	}
	appendAll(t, l, record("a", plan.CPUShares, 1, "", "2"))
	// What stood in the kernel before us is told by the first alone.
	if rs := readAll(t, dir, 0); len(rs) != 2 || rs[0].Want != "1" || rs[1].Want != "2" {
		t.Errorf("%+v", rs)
	}
	if s := l.Stats(); s.Records != 2 {
		t.Errorf("%+v", s)
	}
	if err := l.Compact(); err != nil {
		t.Error(err)
	}
	// One that somebody else has written to is taken as it is, and the line that he was killed in ends there.
	if err := os.RemoveAll(Dir(dir)); err != nil {
		t.Fatal(err)
	}
	another := open(t, dir, "nri", Options{})
	appendAll(t, another, record("b", plan.CPUShares, 1, "", "3"))
	if _, err := another.f.WriteString(`{"t":`); err != nil {
		t.Fatal(err)
	}
	if f, _, err := l.begin(); err == nil || f != nil || !strings.Contains(err.Error(), "another writer") { // its size would be taken for another file's
		t.Errorf("a file that is not ours is compacted: %v", err)
	}
	appendAll(t, l, record("a", plan.CPUShares, 2, "", "4"))
	if rs := readAll(t, dir, 1); len(rs) != 2 || rs[0].Want != "3" || rs[1].Want != "4" {
		t.Errorf("%+v", rs)
	}
}

// A ledger whose directory cannot be used keeps nothing, says why, and keeps again as soon as it can: at the start, and when the directory was
// removed under it and something else stands in its place.
func TestDirectoryThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spoil := func() {
		t.Helper()
		if err := os.WriteFile(Dir(dir), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spoil()
	l, err := New(dir, "koordlet", Options{})
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, when := range []string{"at the start", "later"} {
		if err := l.Append(record("a", plan.CPUShares, 0, "", "1")); err == nil || !strings.Contains(err.Error(), Dir(dir)) {
			t.Errorf("%s: %v", when, err)
		}
		if err := os.Remove(Dir(dir)); err != nil {
			t.Fatal(err)
		}
		appendAll(t, l, record("a", plan.CPUShares, 0, "", "1"))
		kept++ // what was recorded before the directory was removed stands in the new one, too
		if got, _, err := ReadAll(dir); err != nil || len(got) != kept {
			t.Errorf("%s: %d records, want %d, %v", when, len(got), kept, err)
		}
		if err := os.RemoveAll(Dir(dir)); err != nil {
			t.Fatal(err)
		}
		spoil()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Open(); !errors.Is(err, ErrClosed) {
		t.Errorf("opened after the end: %v", err)
	}
}

func TestGarbageIsCountedNotFatal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, "nri", Options{})
	appendAll(t, l, record("a", plan.CPUShares, 0, "", "1"))
	f, err := os.OpenFile(filepath.Join(Dir(dir), "nri.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(f, "{\n[]\nnull\n%s\n", strings.Repeat("z", 3*maxLine))
	_ = f.Close()
	l2 := open(t, dir, "nri", Options{})
	appendAll(t, l2, record("b", plan.CPUShares, 1, "", "2"))
	if rs := readAll(t, dir, 4); len(rs) != 2 {
		t.Errorf("%d records", len(rs))
	}
}

// A restore undoes the past: the next write's original is the first again. A failed first write leaves nothing behind.
func TestRestoreAndFailedFirstWriteForget(t *testing.T) {
	t.Parallel()
	restored := record("a", plan.CPUShares, 1, "512", "1024")
	restored.Via = journal.ViaRestore
	failed := record("b", plan.CPUShares, 1, "", "512")
	failed.Written, failed.Err = nil, "EINVAL"
	rs := []journal.Record{record("a", plan.CPUShares, 0, "1024", "512"), record("b", plan.CPUShares, 0, "1024", "512"), restored, failed}
	for _, e := range NewIndex(rs, nil).Entries() {
		if e.Original != nil || e.Done != nil {
			t.Errorf("%s: original %v, done %v", e.Target, e.Original, e.Done)
		}
		if e.Target == target("a") && (e.Restore == nil || e.Value != nil) {
			t.Error("a: not restored")
		}
	}
	again := NewIndex(append(rs, record("a", plan.CPUShares, 2, "777", "512")), nil).Entries()
	if again[0].Original.Original[0] != "777" || again[0].Value == nil {
		t.Errorf("after another write: %+v", again[0].Original)
	}
}

// A restore that was refused, which its own next record says, has ended nothing: index and compaction keep the original.
func TestRefusedRestoreForgetsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, "nri", Options{})
	try := record("a", plan.CPUShares, 3, "512", "1024")
	try.Via = journal.ViaRestore
	refused := try
	refused.Original, refused.Written, refused.Err = nil, nil, "EINVAL"
	appendAll(t, l, record("a", plan.CPUShares, 0, "1024", "256"), record("a", plan.CPUShares, 1, "256", "512"), try, refused, try, refused)
	check := func(when string, restored bool) {
		t.Helper()
		e := NewIndex(readAll(t, dir, 0), nil).Entries()[0]
		if restored != (e.Original == nil) || restored != (e.Done == nil) || !restored && (e.Original.Original[0] != "1024" || e.Done.Written[0] != "512") {
			t.Errorf("%s: original %+v, done %+v", when, e.Original, e.Done)
		}
	}
	check("refused", false)
	if err := l.Compact(); err != nil {
		t.Fatal(err)
	}
	check("compacted", false)
	appendAll(t, l, try)
	check("restored in the end", true)
	late := record("a", plan.CPUShares, 4, "1024", "300")
	appendAll(t, l, late, refused)
	if e := NewIndex(readAll(t, dir, 0), nil).Entries()[0]; e.Original == nil || e.Original.Written[0] != "300" {
		t.Errorf("a refusal that is not the restore's: %+v", e.Original)
	}
}
