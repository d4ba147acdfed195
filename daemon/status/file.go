// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package status

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/daemon/atomicfile"
)

const (
	prefix = "status-"
	suffix = ".json"
	// maxBytes bounds what a reader takes.
	maxBytes = 4 << 20
)

var writerName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Entry is one status file with the reader's verdict. Writer is the file's, whatever stands in it.
type Entry struct {
	Status
	File string `json:"file"`
	// Alive: the process that wrote it still runs.
	Alive bool `json:"alive"`
	// Stopped: it lives, and a signal or a debugger keeps it from running.
	Stopped bool `json:"stopped,omitempty"`
	// Err says why the file could not be used.
	Err string `json:"err,omitempty"`
}

// Write replaces RunDir/status-WRITER.json. It fills Version, Writer, PID and StartTicks, and cuts what is longer than
// the limits (the newest problems and proof failures stay). The writer's name is a lower-case word ("nri").
func Write(runDir, writer string, s Status) error {
	if !writerName.MatchString(writer) {
		return fmt.Errorf("write status: writer %q is no lower-case name", writer)
	}
	s.Version, s.Writer, s.PID = Version, writer, os.Getpid()
	s.StartTicks = startTicks("/proc", s.PID)
	if n := len(s.Problems); n > MaxProblems {
		s.Problems = s.Problems[n-MaxProblems:]
	}
	s.ProofFailures = newestFailures(s.ProofFailures)
	if s.Agent != nil {
		s.Agent = s.Agent.within()
	}
	b, err := json.Marshal(&s)
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return atomicfile.Write(filepath.Join(runDir, prefix+writer+suffix), append(b, '\n'))
}

func newestFailures(m map[string]ProofFailure) map[string]ProofFailure {
	if len(m) <= MaxProofFailures {
		return m
	}
	ids := make([]string, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int {
		if c := m[b].Time.Compare(m[a].Time); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	out := make(map[string]ProofFailure, MaxProofFailures)
	for _, id := range ids[:MaxProofFailures] {
		out[id] = m[id]
	}
	return out
}

// ReadAll reads every status file, ordered by name; procRoot is "/proc". A run directory that does not exist has none.
func ReadAll(runDir, procRoot string) ([]Entry, error) {
	writers, err := Writers(runDir)
	if err != nil {
		return nil, err
	}
	var out []Entry
	for _, w := range writers {
		out = append(out, Read(runDir, procRoot, w))
	}
	return out, nil
}

// Read reads the status file of one writer; one that has none is an entry with an error.
func Read(runDir, procRoot, writer string) Entry {
	e := read(filepath.Join(runDir, prefix+writer+suffix), procRoot)
	e.Writer = writer // also of one that cannot be read
	return e
}

// Reader reads one writer's status again and again. A file that was not replaced since is not read twice; whether its process lives
// is looked up each time. The zero value with its three fields is ready. Not for concurrent use.
type Reader struct {
	RunDir, ProcRoot, Writer string

	info os.FileInfo // of what was read last; nil for what has to be read
	last Entry
}

// Read is the function of that name.
func (r *Reader) Read() Entry {
	info, err := os.Stat(filepath.Join(r.RunDir, prefix+r.Writer+suffix))
	if err == nil && r.info != nil && os.SameFile(info, r.info) && info.ModTime().Equal(r.info.ModTime()) && info.Size() == r.info.Size() {
		r.last.Alive, r.last.Stopped = lives(&r.last.Status, r.ProcRoot)
		return r.last
	}
	if r.info, r.last = nil, Read(r.RunDir, r.ProcRoot, r.Writer); err == nil && r.last.Err == "" {
		r.info = info
	}
	return r.last
}

// Writers are the names of those who have a status file, whether it can be read and its process lives or not, ordered. A
// run directory that does not exist has none.
func Writers(runDir string) ([]string, error) {
	names, err := os.ReadDir(runDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read status: %w", err)
	}
	var out []string
	for _, n := range names {
		if rest, ok := strings.CutPrefix(n.Name(), prefix); ok && strings.HasSuffix(rest, suffix) {
			out = append(out, strings.TrimSuffix(rest, suffix))
		}
	}
	return out, nil
}

func read(path, procRoot string) Entry {
	b, err := readBounded(path)
	if err != nil {
		return Entry{File: path, Err: err.Error()}
	}
	s, err := parse(b)
	if err != nil {
		return Entry{File: path, Err: fmt.Sprintf("read status %s: %v", path, err)}
	}
	e := Entry{Status: s, File: path}
	e.Alive, e.Stopped = lives(&s, procRoot)
	return e
}

// lives reports whether the process that wrote a status is still there, and whether it is stopped. A pid is reused; with its
// start time it is not.
func lives(s *Status, procRoot string) (alive, stopped bool) {
	state, ticks := process(procRoot, s.PID)
	alive = ticks != 0 && ticks == s.StartTicks
	return alive, alive && (state == "T" || state == "t") // by a signal, by a tracer
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read status: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read status %s: %w", path, err)
	}
	if len(b) > maxBytes {
		return nil, fmt.Errorf("read status %s: longer than %d bytes", path, maxBytes)
	}
	return b, nil
}

func parse(b []byte) (Status, error) {
	var s Status
	if err := json.Unmarshal(b, &s); err != nil {
		return Status{}, err
	}
	if s.Version != Version {
		return Status{}, fmt.Errorf("format version %d, this koordctl reads %d", s.Version, Version)
	}
	return s, nil
}

// startTicks is the start of a process in clock ticks since boot; 0 when there is no such process.
func startTicks(procRoot string, pid int) uint64 {
	_, ticks := process(procRoot, pid)
	return ticks
}

// process reads fields 3 and 22 of /proc/PID/stat, the state and the start in clock ticks since boot (proc_pid_stat(5)); 0 when
// there is no such process. The second field is a name in parentheses that may hold anything.
func process(procRoot string, pid int) (state string, start uint64) {
	if pid <= 0 {
		return "", 0
	}
	b, err := os.ReadFile(filepath.Join(procRoot, strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", 0
	}
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return "", 0
	}
	f := strings.Fields(string(b[i+1:]))
	const startTime = 22 - 3 // the state, field 3, is the first of f
	if len(f) <= startTime {
		return "", 0
	}
	if start, err = strconv.ParseUint(f[startTime], 10, 64); err != nil {
		return "", 0
	}
	return f[0], start
}
