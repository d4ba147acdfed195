// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package status

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWriteReadAndLiveness(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := Status{Program: "koord-nri", ProofFailures: map[string]ProofFailure{}}
	for i := range MaxProblems + 5 {
		s.Problems = append(s.Problems, Problem{Reason: fmt.Sprint(i)})
	}
	for i := range MaxProofFailures + 5 {
		s.ProofFailures[fmt.Sprint(i)] = ProofFailure{Time: time.Unix(int64(i), 0)}
	}
	if err := Write(dir, "nri", s); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"status-half.json": `{"ver`, "status-other.json": `{"version":99}`, "other.json": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadAll(dir, "/proc")
	if err != nil || len(got) != 3 {
		t.Fatalf("%d entries: %v", len(got), err)
	}
	if names, err := Writers(dir); err != nil || !slices.Equal(names, []string{"half", "nri", "other"}) {
		t.Errorf("writers %q, %v", names, err)
	}
	if got[0].Err == "" || got[2].Err == "" || got[0].Alive || got[0].Writer != "half" || got[2].Writer != "other" {
		t.Errorf("bad files: %+v %+v", got[0], got[2])
	}
	nri := got[1]
	if !nri.Alive || nri.PID != os.Getpid() || nri.Writer != "nri" || nri.Err != "" {
		t.Errorf("%+v", nri)
	}
	if len(nri.Problems) != MaxProblems || nri.Problems[0].Reason != "5" {
		t.Errorf("problems: %d, first %+v", len(nri.Problems), nri.Problems[0])
	}
	if _, oldest := nri.ProofFailures["0"]; oldest || len(nri.ProofFailures) != MaxProofFailures {
		t.Errorf("proof failures: %d", len(nri.ProofFailures))
	}
	if st, err := os.Stat(nri.File); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v %v", st.Mode(), err)
	}
	// A /proc where the pid belongs to a process that started at another time, and one without it.
	proc := t.TempDir()
	if got, _ := ReadAll(dir, proc); got[1].Alive {
		t.Error("alive without a process")
	}
	pidDir := filepath.Join(proc, fmt.Sprint(os.Getpid()))
	if err := os.Mkdir(pidDir, 0o700); err != nil {
		t.Fatal(err)
	}
	stat := fmt.Sprintf("%d (a) b) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0", os.Getpid(), nri.StartTicks+1)
	if err := os.WriteFile(filepath.Join(pidDir, "stat"), []byte(stat), 0o600); err != nil {
		t.Fatal(err)
	}
	if startTicks(proc, os.Getpid()) != nri.StartTicks+1 {
		t.Error("start time misread")
	}
	if got, _ := ReadAll(dir, proc); got[1].Alive {
		t.Error("alive with a reused pid")
	}
	// Stopped is who lives and does not run: by a signal, by a tracer, and not while it sleeps or works.
	for state, stopped := range map[string]bool{"R": false, "S": false, "D": false, "T": true, "t": true} {
		stat := fmt.Sprintf("%d (a) T) %s 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0", os.Getpid(), state, nri.StartTicks)
		if err := os.WriteFile(filepath.Join(pidDir, "stat"), []byte(stat), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _ := ReadAll(dir, proc); !got[1].Alive || got[1].Stopped != stopped {
			t.Errorf("state %s: alive %t, stopped %t", state, got[1].Alive, got[1].Stopped)
		}
	}
}

// TestReader: a status that stands is not read again, one that was replaced is, and whether its process lives is asked each time.
func TestReader(t *testing.T) {
	t.Parallel()
	dir, proc := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "status-nri.json")
	r := Reader{RunDir: dir, ProcRoot: proc, Writer: "nri"}
	if e := r.Read(); e.Err == "" || e.Writer != "nri" {
		t.Errorf("no file: %+v", e)
	}
	write := func(program string) {
		t.Helper()
		if err := Write(dir, "nri", Status{Program: program}); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	if e := r.Read(); e.Program != "one" || e.Alive || e.Err != "" || e.File != file {
		t.Errorf("the first: %+v", e)
	}
	if err := os.Symlink(fmt.Sprint("/proc/", os.Getpid()), filepath.Join(proc, fmt.Sprint(os.Getpid()))); err != nil {
		t.Fatal(err)
	}
	// What nobody writes: other content in the same file, as old and as long.
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "one", "two", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, st.ModTime(), st.ModTime()); err != nil {
		t.Fatal(err)
	}
	if e := r.Read(); e.Program != "one" || !e.Alive || e.Writer != "nri" {
		t.Errorf("as it stood, with a process: %+v", e)
	}
	write("three")
	if e := r.Read(); e.Program != "three" || !e.Alive {
		t.Errorf("replaced: %+v", e)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if e := r.Read(); e.Err == "" || e.Alive {
		t.Errorf("removed: %+v", e)
	}
	write("four")
	if e := r.Read(); e.Program != "four" {
		t.Errorf("back: %+v", e)
	}
}

func TestBadNamesAndMissingDirectory(t *testing.T) {
	t.Parallel()
	if err := Write(t.TempDir(), "../x", Status{}); err == nil {
		t.Error("writer with a path accepted")
	}
	if got, err := ReadAll(filepath.Join(t.TempDir(), "none"), "/proc"); err != nil || got != nil {
		t.Errorf("%v %v", got, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":1,"pid":3,"problems":[{"t":"2026-05-01T12:00:00Z","reason":"x"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parse(b); err == nil && s.Version != Version {
			t.Fatalf("version %d accepted", s.Version)
		}
	})
}
