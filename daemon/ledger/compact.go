// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ledger

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/koord-rt/koord-rt/daemon/atomicfile"
	"github.com/koord-rt/koord-rt/model/journal"
)

// Run compacts when needed until ctx ends; it returns nil then. A compaction that fails is visible in Stats and tried
// again after further appends.
func (l *Ledger) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
			err := l.Compact()
			l.mu.Lock()
			l.stats.CompactionErr = err
			l.mu.Unlock()
		}
	}
}

// Compact rewrites the file with only what matters of live targets (see tracker). The bulk is read and written without
// the lock; what is appended meanwhile is copied over under it. A kill at any point leaves the old file or the new one.
func (l *Ledger) Compact() error {
	l.mu.Lock()
	size, err := l.size, l.missing()
	l.mu.Unlock()
	if err != nil {
		return err
	}

	old, err := os.Open(l.path)
	if err != nil {
		return fmt.Errorf("compact ledger: %w", err)
	}
	defer old.Close()
	keep, err := l.digest(io.NewSectionReader(old, 0, size))
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
	if err = copySpans(tmp, old, keep); err == nil {
		err = l.swap(tmp, old, size, int64(len(keep)))
	}
	if err != nil {
		_ = tmp.Close()
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("compact ledger %s: %w", l.path, err)
	}
	return nil
}

// digest finds the lines to keep. What another process has restored since makes our next write the first one, so its
// restores are woven in by time, as ReadAll's merge does.
func (l *Ledger) digest(own io.Reader) ([]span, error) {
	restores, err := l.restoresOfOthers()
	if err != nil {
		return nil, err
	}
	tr := tracker[span]{}
	_, err = scan(own, func(r *journal.Record, s span) {
		for len(restores) > 0 && restores[0].Before(r) {
			tr.add(&restores[0], elsewhere)
			restores = restores[1:]
		}
		tr.add(r, s)
	})
	for i := range restores {
		tr.add(&restores[i], elsewhere)
	}
	return keptSpans(tr), err
}

// elsewhere is the place of a record in another file.
var elsewhere = span{off: -1}

// restoresOfOthers reads the other writers' restores.
func (l *Ledger) restoresOfOthers() ([]journal.Record, error) {
	files, err := writersFiles(filepath.Dir(l.path))
	if err != nil {
		return nil, err
	}
	var lists [][]journal.Record
	for _, path := range files {
		if path == l.path {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		var list []journal.Record
		_, err = scan(f, func(r *journal.Record, _ span) {
			if r.Via == journal.ViaRestore {
				list = append(list, *r)
			}
		})
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		lists = append(lists, list)
	}
	return merge(lists), nil
}

// keptSpans lists every line once, in the order of the file.
func keptSpans(tr tracker[span]) []span {
	var keep []span
	for _, sub := range tr {
		for _, s := range sub.settings {
			keep = append(append(keep, s.first, s.theirs), s.extra...)
			for _, w := range s.recent {
				keep = append(keep, w.rec, w.why)
			}
			for i, has := range s.has {
				if has {
					keep = append(keep, s.rec[i])
				}
			}
		}
	}
	keep = slices.DeleteFunc(keep, func(s span) bool { return s == elsewhere || s == span{} })
	slices.SortFunc(keep, func(a, b span) int { return cmp.Compare(a.off, b.off) })
	return slices.Compact(keep)
}

func copySpans(dst io.Writer, src io.ReaderAt, spans []span) error {
	w := bufio.NewWriterSize(dst, 64<<10)
	for _, s := range spans {
		if _, err := io.Copy(w, io.NewSectionReader(src, s.off, int64(s.len))); err != nil {
			return err
		}
		if err := w.WriteByte('\n'); err != nil {
			return err
		}
	}
	return w.Flush()
}

// swap copies what was appended since and puts the new file in the place of the old.
func (l *Ledger) swap(tmp, old *os.File, from, kept int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.missing(); err != nil {
		return err
	}
	a, err := l.f.Stat()
	if err != nil {
		return err
	}
	if b, err := old.Stat(); err != nil || !os.SameFile(a, b) {
		return fmt.Errorf("%s is not the file that was opened: another writer of one name?", filepath.Base(l.path))
	}
	if _, err := io.Copy(tmp, io.NewSectionReader(old, from, l.size-from)); err != nil {
		return err
	}
	st, err := tmp.Stat()
	if err != nil {
		return err
	}
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
	l.size = st.Size()
	l.records = kept
	l.triggerBytes = max(l.o.MaxBytes, 2*l.size)
	l.triggerRec = max(l.o.MaxRecords, 2*kept)
	l.stats.Compactions++
	return nil
}
