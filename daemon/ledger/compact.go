// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ledger

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/koord-rt/koord-rt/daemon/atomicfile"
	"github.com/koord-rt/koord-rt/model/journal"
)

// Run compacts when needed until ctx ends; it returns nil then. A compaction that fails is told (Options.Failed), unless the one before it
// has failed alike, and tried again after further appends.
func (l *Ledger) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
			err := l.Compact()
			l.mu.Lock()
			before := l.stats.CompactionErr
			l.stats.CompactionErr = err
			l.mu.Unlock()
			if err != nil && l.o.Failed != nil && (before == nil || before.Error() != err.Error()) {
				l.o.Failed(err)
			}
		}
	}
}

// Compact rewrites the file with only what matters of live targets (see tracker). The bulk is read and written without
// the lock; what is appended meanwhile is copied over under it. A kill at any point leaves the old file or the new one.
func (l *Ledger) Compact() error {
	old, size, err := l.begin()
	if err != nil {
		return err
	}
	defer old.Close()
	keep, verdicts, err := l.digest(old, size)
	if err != nil {
		return fmt.Errorf("compact ledger %s: %w", l.path, err)
	}
	if more := len(keep) - l.o.Newest; l.o.Newest > 0 && more > 0 {
		keep = keep[more:]
	}
	tmp, err := atomicfile.Create(l.path)
	if err != nil {
		return err
	}
	if err = l.copySpans(tmp, old, keep, verdicts); err == nil {
		err = l.swap(tmp, old, size, int64(len(keep)))
	}
	if err != nil {
		_ = tmp.Close()
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("compact ledger %s: %w", l.path, err)
	}
	return nil
}

// begin opens the file that is appended to, and no other that may have got its name since its size was asked.
func (l *Ledger) begin() (*os.File, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.missing(); err != nil {
		return nil, 0, err
	}
	old, err := os.Open(l.path)
	if err != nil {
		return nil, 0, fmt.Errorf("compact ledger: %w", err)
	}
	if err := l.isOwn(old); err != nil {
		_ = old.Close()
		return nil, 0, fmt.Errorf("compact ledger: %w", err)
	}
	return old, l.size, nil
}

// isOwn is an error unless f is the file that is appended to. The caller holds mu.
func (l *Ledger) isOwn(f *os.File) error {
	a, err := l.f.Stat()
	if err != nil {
		return err
	}
	if b, err := f.Stat(); err != nil || !os.SameFile(a, b) {
		return fmt.Errorf("%s is not the file that was opened: another writer of one name?", filepath.Base(l.path))
	}
	return nil
}

// digest finds the lines to keep, and of those of them that say to have gone over somebody else's value whether it was one of ours. That
// takes what other processes have written to the same knobs, of which a later compaction may leave less; so a line of ours is kept as well
// by which another's is to be judged. What another has restored makes our next write the first one, and what another has told the runtime
// ends what we had put there.
func (l *Ledger) digest(own io.ReaderAt, size int64) (keep []span, verdicts map[int64]bool, err error) {
	open, err := l.openSubjects(own, size)
	if err != nil {
		return nil, nil, err
	}
	if verdicts = map[int64]bool{}; len(open) > 0 {
		if keep, err = l.judge(own, size, open, verdicts); err != nil {
			return nil, nil, err
		}
	}
	alone := newTracker[span](l.same)
	err = l.weave(own, size, func(r *journal.Record, at span) {
		if ours, judged := verdicts[at.off]; judged {
			settle(r, ours)
		}
		if at.off >= 0 || r.Via == journal.ViaRestore || r.Via == journal.ViaTold {
			alone.add(r, at)
		}
	})
	for _, sub := range alone.of {
		for _, s := range sub.settings {
			keep = s.appendKept(keep)
		}
	}
	keep = slices.DeleteFunc(keep, func(s span) bool { return s.off < 0 || s == span{} })
	slices.SortFunc(keep, func(a, b span) int { return cmp.Compare(a.off, b.off) })
	return slices.Compact(keep), verdicts, err
}

// openSubjects are what the open records of all writers are about.
func (l *Ledger) openSubjects(own io.ReaderAt, size int64) (map[uint64]bool, error) {
	out := map[uint64]bool{}
	all, _, err := l.files(own, size)
	defer all.close()
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		f.with = []byte(`"theirs":true`) // few have it, and to decode the others takes most of the time
		for r, _ := f.next(); r != nil; r, _ = f.next() {
			if isOpen(r) {
				out[subjectOf(r)] = true
			}
		}
	}
	return out, all.err()
}

// judge fills in the verdicts on our open records, and returns our lines by which others' are to be judged.
func (l *Ledger) judge(own io.ReaderAt, size int64, open map[uint64]bool, verdicts map[int64]bool) (keep []span, err error) {
	all := newTracker[span](l.same)
	err = l.weave(own, size, func(r *journal.Record, at span) {
		if r.Via != journal.ViaGone && !open[subjectOf(r)] {
			return
		}
		if isOpen(r) {
			if ours := all.judge(r, at.off < 0); at.off >= 0 {
				verdicts[at.off] = ours
			}
		}
		all.add(r, at)
	})
	for _, sub := range all.of {
		for _, s := range sub.settings {
			keep = append(keep, s.by...)
		}
	}
	return keep, err
}

// subjectOf is a hash of what a record is about.
func subjectOf(r *journal.Record) uint64 { return sum(targetKey(&r.Target), r.Knob, r.Key) }

// settle has a record say for good whether it went over somebody else's value.
func settle(r *journal.Record, ours bool) {
	if r.Judged = !ours; ours {
		r.Theirs, r.Found = false, ""
	}
}

// weave calls fn for the records of the first size bytes of this file and for those of the other writers, by time as ReadAll does. A
// record that stands elsewhere has a place of its own below zero.
func (l *Ledger) weave(own io.ReaderAt, size int64, fn func(*journal.Record, span)) error {
	all, ours, err := l.files(own, size)
	defer all.close()
	if err != nil {
		return err
	}
	elsewhere := int64(0)
	all.weave(func(f *file) {
		at := f.at
		if f != ours {
			elsewhere--
			at = span{off: elsewhere}
		}
		fn(f.head, at)
	})
	return all.err()
}

// files are those of all writers, this one's as far as its first size bytes, by name as ReadAll has them.
func (l *Ledger) files(own io.ReaderAt, size int64) (all files, ours *file, err error) {
	paths, err := writersFiles(filepath.Dir(l.path))
	if err != nil {
		return nil, nil, err
	}
	all, err = openFiles(slices.DeleteFunc(paths, func(p string) bool { return p == l.path }))
	ours = &file{scanner: newScanner(io.NewSectionReader(own, 0, size)), path: l.path, closer: io.NopCloser(nil)}
	all = append(all, ours)
	for _, f := range all {
		f.step = l.step
	}
	slices.SortFunc(all, func(a, b *file) int { return cmp.Compare(a.path, b.path) })
	return all, ours, err
}

// copySpans copies lines, those with a verdict judged.
func (l *Ledger) copySpans(dst io.Writer, src io.ReaderAt, spans []span, verdicts map[int64]bool) error {
	w := bufio.NewWriterSize(dst, 64<<10)
	var line []byte
	for _, s := range spans {
		if l.step != nil {
			l.step()
		}
		line = slices.Grow(line[:0], s.len)[:s.len]
		if _, err := src.ReadAt(line, s.off); err != nil {
			return err
		}
		var r journal.Record
		if ours, judged := verdicts[s.off]; judged && json.Unmarshal(line, &r) == nil {
			settle(&r, ours)
			line = bytes.TrimSuffix(appendRecord(line[:0], &r, r.Up), []byte{'\n'})
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return w.Flush()
}

// take gives a temporary file the ledger's name and appends to it from then on. After an error the old one is in place still. The caller holds mu.
func (l *Ledger) take(tmp *os.File) error {
	// The descriptor keeps O_APPEND off, so the ledger opens its own by name before the name means the new file.
	f, err := os.OpenFile(tmp.Name(), os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), l.path); err != nil {
		_ = f.Close()
		return err
	}
	_ = tmp.Close()
	_ = l.f.Close()
	l.f = f
	return nil
}

// swap copies what was appended since and puts the new file in the place of the old.
func (l *Ledger) swap(tmp, old *os.File, from, kept int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.missing(); err != nil {
		return err
	}
	if err := l.isOwn(old); err != nil {
		return err
	}
	if _, err := io.Copy(tmp, io.NewSectionReader(old, from, l.size-from)); err != nil {
		return err
	}
	st, err := tmp.Stat()
	if err != nil {
		return err
	}
	if err := l.take(tmp); err != nil {
		return err
	}
	l.size = st.Size()
	l.records = kept
	l.triggerBytes = max(l.o.MaxBytes, 2*l.size)
	l.triggerRec = max(l.o.MaxRecords, 2*kept)
	l.stats.Compactions++
	return nil
}
