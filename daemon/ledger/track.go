// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ledger

import (
	"hash/fnv"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// slot is one of the records that are worth keeping of a (target, knob, key).
type slot uint8

const (
	// slotRuntime is the newest wish that the runtime took, slotBefore the one before it that differs, and slotTold says that it has neither
	// any more.
	slotRuntime slot = iota
	slotBefore
	slotTold
	// slotBesideFirst and slotBeside are the oldest and the newest of what systemd may have written by our doing.
	slotBesideFirst
	slotBeside
	// slotDone is the newest wish that went well: what the kernel should hold. slotValue is the newest wish at all, and slotRefused the
	// write that it says was refused: a reader that does not look for one would take another for it.
	slotDone
	slotValue
	slotRefused
	// slotRestore is the newest restore at all, slotEnded the newest that was not refused, and slotTried the one that slotRestore says was.
	slotRestore
	slotEnded
	slotTried
	slotProof
	slotProblem
	slotDrift
	numSlots
)

// maxFiles bounds the files of one setting whose originals are kept: settings of processes have one per process.
const maxFiles = 64

// settingKey is a knob and its key.
type settingKey struct{ knob, key string }

// setting holds the records of one (target, knob, key).
type setting[T comparable] struct {
	boot  string
	inode uint64
	has   [numSlots]bool
	rec   [numSlots]T
	writes[T]
	// last is the newest write until a restore or its refusal, which puts back what was before: before and doneBefore.
	last       *journal.Record
	before     writes[T]
	doneBefore T
	// runtime is the value of slotRuntime.
	runtime string
	// ended is what the newest restore has ended, until the next write: the record of its refusal takes it back.
	ended *setting[T]
	// by are the records by which others are to be judged (tracker.judge).
	by []T
}

// writes are the direct writes that are worth keeping since the last restore; the zero T is none.
type writes[T comparable] struct {
	// first is the oldest, theirs the newest over what somebody else had written since our last.
	first, theirs T
	// recent are the newest since theirs, newest first. No two wrote the same.
	recent [journal.Recent]recent[T]
	// want is what the newest is to have made of the value.
	want string
	// files are hashes of the files whose originals are in extra (or first).
	files []uint64
	extra []T
}

// recent is a write and a hash of what it wrote.
type recent[T comparable] struct {
	rec T
	sum uint64
}

// ofWrites are the slots that a restore ends.
var ofWrites = [...]slot{slotBesideFirst, slotBeside, slotDone, slotValue, slotRefused, slotTried}

// appendKept appends what matters of a setting; the zero T and some more than once.
func (s *setting[T]) appendKept(keep []T) []T {
	keep = append(append(keep, s.first, s.theirs), s.extra...)
	for _, w := range s.recent {
		keep = append(keep, w.rec)
	}
	for i, has := range s.has {
		if has {
			keep = append(keep, s.rec[i])
		}
	}
	return keep
}

func (s *setting[T]) put(sl slot, v T) { s.has[sl], s.rec[sl] = true, v }

func (s *setting[T]) drop(slots ...slot) {
	var none T
	for _, sl := range slots {
		s.has[sl], s.rec[sl] = false, none
	}
}

// subject is one target's settings.
type subject[T comparable] struct {
	target   plan.Target
	settings map[settingKey]*setting[T]
}

// tracker digests records in order and keeps, per live (target, knob, key), the few that matter. The index keeps
// records in it and compaction keeps places in a file, so that both agree on what matters.
type tracker[T comparable] struct {
	of   map[string]*subject[T]
	same Same
}

// Same reports whether what a record found is a value that was wanted, as far as the kernel can hold it.
type Same func(r *journal.Record, want string) bool

func newTracker[T comparable](same Same) tracker[T] {
	if same == nil {
		same = func(r *journal.Record, want string) bool { return r.Found == want }
	}
	return tracker[T]{map[string]*subject[T]{}, same}
}

// targetKey names a target independently of Name, Pod and Container, which not every writer knows.
func targetKey(t *plan.Target) string {
	prefix := "c:" // a cgroup
	switch {
	case t.Level == plan.LevelNode:
		return "n:"
	case t.Level == plan.LevelGroup:
		prefix = "g:"
	case t.Cgroup == "" && t.Container != "":
		return "i:" + t.Container
	case t.Cgroup == "":
		return "p:" + t.Pod
	}
	return prefix + t.Cgroup
}

// add digests one record.
func (tr tracker[T]) add(r *journal.Record, v T) {
	if r.Via == journal.ViaGone {
		tr.gone(&r.Target)
		return
	}
	tk := targetKey(&r.Target)
	sub := tr.of[tk]
	if sub == nil {
		sub = &subject[T]{settings: map[settingKey]*setting[T]{}}
		tr.of[tk] = sub
	}
	if sub.target.Name == "" || r.Target.Name != "" {
		sub.target = r.Target
	}
	k := settingKey{r.Knob, r.Key}
	s := sub.settings[k]
	if s == nil || r.Inode != 0 && s.inode != 0 && (s.inode != r.Inode || s.boot != r.Boot) {
		// A different inode at the same path is another cgroup: nothing of the old one counts.
		s = &setting[T]{}
		sub.settings[k] = s
	}
	if r.Inode != 0 {
		s.boot, s.inode = r.Boot, r.Inode
	}
	s.digest(r, v, tr.same)
}

// digest follows kernel/apply's reading of a ledger: what it would restore from all records it restores from the kept
// ones.
func (s *setting[T]) digest(r *journal.Record, v T, same Same) {
	switch r.Via {
	case journal.ViaProof:
		s.put(slotProof, v)
		return
	case journal.ViaProblem:
		s.put(slotProblem, v)
		return
	case journal.ViaDrift:
		s.put(slotDrift, v)
		return
	case journal.ViaBeside:
		if !s.has[slotBesideFirst] {
			s.put(slotBesideFirst, v)
		}
		s.put(slotBeside, v)
		return
	case journal.ViaTold:
		s.drop(slotRuntime, slotBefore)
		s.runtime = ""
		s.put(slotTold, v)
		return
	case journal.ViaRestore:
		if r.Err == "" {
			id, known := r.ID()
			s.restart(v, known && id.InRuntime())
		} else {
			s.takeBack()
		}
		s.put(slotRestore, v)
		return
	}
	s.drop(slotRefused)
	switch r.Via {
	case journal.ViaRuntime:
		s.ended = nil
		if r.Err == "" {
			s.tookRuntime(r.Want, v)
		}
	case journal.ViaDirect:
		s.ended = nil
		s.direct(r, v, same)
	}
	if r.Err == "" {
		s.put(slotDone, v)
	}
	s.put(slotValue, v)
}

// tookRuntime takes a wish that the runtime took.
func (s *setting[T]) tookRuntime(want string, v T) {
	if s.has[slotRuntime] && s.runtime != want {
		s.put(slotBefore, s.rec[slotRuntime])
	}
	s.put(slotRuntime, v)
	s.runtime = want
}

// direct takes a write of ours, or the record that takes the last one back.
func (s *setting[T]) direct(r *journal.Record, v T, same Same) {
	var none T
	switch {
	case len(r.Written) > 0:
		s.last, s.before, s.doneBefore = r, s.writes, s.rec[slotDone]
		if r.Theirs && !s.holdsOurs(r, same) {
			s.theirs, s.recent = v, [journal.Recent]recent[T]{}
		}
		s.keepOriginals(r, v)
		if s.first == none {
			s.first = v
		}
		s.wrote(recent[T]{v, sum(r.Written...)})
		s.want = r.Want
	case s.last != nil && r.TakesBack(s.last):
		refused := s.recent[0].rec
		s.writes, s.last = s.before, nil
		if s.rec[slotDone] == refused {
			s.has[slotDone], s.rec[slotDone] = s.doneBefore != none, s.doneBefore
		}
		s.put(slotRefused, refused)
	}
}

// holdsOurs reports whether another process of ours, or the runtime for us, has written last what a writer took for somebody else's. An older
// record does not say what was found, and is believed, as is one that was judged.
func (s *setting[T]) holdsOurs(r *journal.Record, same Same) bool {
	holds := func(want string) bool { return want != "" && same(r, want) }
	return !r.Judged && r.Found != "" && (holds(s.want) || holds(s.runtime))
}

// isOpen reports whether it takes other records to tell whose value a write went over.
func isOpen(r *journal.Record) bool {
	return r.Via == journal.ViaDirect && len(r.Written) > 0 && r.Theirs && !r.Judged && r.Found != ""
}

// judge tells of an open record that comes next whether it went over a value of ours. The records that it takes to tell are kept where it stays
// open.
func (tr tracker[T]) judge(r *journal.Record, open bool) (ours bool) {
	sub := tr.of[targetKey(&r.Target)]
	if sub == nil {
		return false
	}
	s := sub.settings[settingKey{r.Knob, r.Key}]
	if s == nil || r.Inode != 0 && s.inode != 0 && (s.inode != r.Inode || s.boot != r.Boot) {
		return false
	}
	if open {
		s.by = append(s.by, s.recent[0].rec, s.rec[slotRuntime])
	}
	return s.holdsOurs(r, tr.same)
}

// wrote puts a write before the other recent ones, and in the place of one that wrote the same.
func (s *setting[T]) wrote(next recent[T]) {
	same := next.sum
	for i, was := range s.recent {
		s.recent[i], next = next, was
		if was.sum == same {
			return
		}
	}
}

// sum is a hash of texts.
func sum(texts ...string) uint64 {
	h := fnv.New64a()
	for _, t := range texts {
		_, _ = h.Write([]byte(t)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

// keepOriginals keeps a record that is the first with the content of one of its files.
func (s *setting[T]) keepOriginals(r *journal.Record, v T) {
	var none T
	isNew := false
	for _, f := range r.Files[:min(len(r.Files), len(r.Original))] {
		if file := sum(f); len(s.files) < maxFiles && !slices.Contains(s.files, file) {
			s.files = append(s.files, file)
			isNew = true
		}
	}
	if isNew && s.first != none {
		s.extra = append(s.extra, v)
	}
}

// restart forgets what a restore has undone.
func (s *setting[T]) restart(v T, inRuntime bool) {
	was := *s
	was.ended = nil
	s.ended = &was
	s.drop(ofWrites[:]...)
	s.writes, s.last = writes[T]{}, nil
	if !inRuntime {
		s.drop(slotRuntime, slotBefore)
		s.runtime = ""
	}
	s.put(slotEnded, v)
}

// takeBack undoes restart: the kernel has refused the restore, which was recorded before it was tried.
func (s *setting[T]) takeBack() {
	was := s.ended
	if was == nil {
		return
	}
	s.put(slotTried, s.rec[slotEnded])
	for _, sl := range append(ofWrites[:], slotEnded, slotRuntime, slotBefore) {
		if sl != slotTried {
			s.has[sl], s.rec[sl] = was.has[sl], was.rec[sl]
		}
	}
	s.writes, s.runtime, s.ended = was.writes, was.runtime, nil
}

// gone drops a target and, as a removed cgroup has no children, everything below it.
func (tr tracker[T]) gone(t *plan.Target) {
	tk := targetKey(t)
	delete(tr.of, tk)
	if !strings.HasPrefix(tk, "c:/") {
		return
	}
	below := tk + "/"
	for k := range tr.of {
		if strings.HasPrefix(k, below) {
			delete(tr.of, k)
		}
	}
}
