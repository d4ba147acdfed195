// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ledger

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/koord-rt/koord-rt/daemon/atomicfile"
	"github.com/koord-rt/koord-rt/model/journal"
)

// maxLine bounds one record on both sides, so that a file of garbage cannot make a reader use more.
const maxLine = 1 << 20

// ReadAll reads every writer's file below RunDir/ledger. The records of one writer stay in the order in which they were
// written, whatever the clock did; writers are merged by time. torn counts lines that could not be read. Files that
// could not be read are named by err; the records of the others are returned all the same. A directory that does not
// exist is an empty ledger.
func ReadAll(runDir string) (records []journal.Record, torn int, err error) {
	paths, err := writersFiles(Dir(runDir))
	if err != nil {
		return nil, 0, fmt.Errorf("read ledger: %w", err)
	}
	all, err := openFiles(paths)
	defer all.close()
	all.weave(func(f *file) { records = append(records, *f.head) })
	for _, f := range all {
		torn += f.torn
	}
	if errs := errors.Join(err, all.err()); errs != nil {
		return records, torn, fmt.Errorf("read ledger: %w", errs)
	}
	return records, torn, nil
}

// Read reads one writer's file in the order in which it was written; torn counts lines that could not be read. A writer
// without a file has written nothing.
func Read(runDir, writer string) (records []journal.Record, torn int, err error) {
	records, torn, err = readFile(filepath.Join(Dir(runDir), writer+suffix))
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, nil
	}
	return records, torn, err
}

// writersFiles lists the writers' files by name; none when the directory does not exist.
func writersFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) && !atomicfile.IsTemp(e.Name()) && e.Type().IsRegular() {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, err
}

func readFile(path string) (list []journal.Record, torn int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("read ledger: %w", err)
	}
	defer f.Close()
	torn, err = scan(f, func(r *journal.Record, _ span) { list = append(list, *r) })
	if err != nil {
		return list, torn, fmt.Errorf("read ledger %s: %w", path, err)
	}
	return list, torn, nil
}

// span is a line's place in a file, without its newline.
type span struct {
	off int64
	len int
}

// scan calls fn for each line that is a record and counts those that are none. The record is fn's to keep.
func scan(rd io.Reader, fn func(*journal.Record, span)) (torn int, err error) {
	s := newScanner(rd)
	for r, at := s.next(); r != nil; r, at = s.next() {
		fn(r, at)
	}
	return s.torn, s.err
}

// scanner reads records one after the other.
type scanner struct {
	br   *bufio.Reader
	off  int64
	long []byte
	ends bool
	// with is what a line has to have, or it is not looked at; nil for nothing.
	with []byte
	// step is called at each line; nil for nothing.
	step func()
	// torn counts lines that are no records; err is why reading ended before the end.
	torn int
	err  error
}

func newScanner(rd io.Reader) *scanner { return &scanner{br: bufio.NewReaderSize(rd, 64<<10)} }

// next is the next record, which is the caller's to keep, and its place; nil at the end.
func (s *scanner) next() (*journal.Record, span) {
	for !s.ends {
		if s.step != nil {
			s.step()
		}
		line, n, err := readLine(s.br, &s.long)
		at := span{s.off, len(line)}
		s.off += int64(n)
		if s.ends = err != nil; s.ends && !errors.Is(err, io.EOF) {
			s.err = err
			break
		}
		if len(bytes.TrimSpace(line)) == 0 || s.with != nil && !bytes.Contains(line, s.with) {
			continue
		}
		var r journal.Record
		if n <= maxLine && json.Unmarshal(line, &r) == nil && r.Via != "" {
			return &r, at
		}
		s.torn++
	}
	return nil, span{}
}

// readLine returns the next line without its newline and the number of bytes it took. At most maxLine bytes of it are
// kept.
func readLine(br *bufio.Reader, long *[]byte) (line []byte, n int, err error) {
	*long = (*long)[:0]
	for {
		part, err := br.ReadSlice('\n')
		n += len(part)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if n <= maxLine {
				*long = append(*long, part...)
			}
			continue
		case len(*long) > 0:
			if n <= maxLine+1 {
				*long = append(*long, part...)
			}
			part = *long
		}
		return bytes.TrimSuffix(part, []byte{'\n'}), n, err
	}
}

// file is a writer's that is being read. head is the next record and at its place; nil at the end.
type file struct {
	*scanner
	path   string
	closer io.Closer
	head   *journal.Record
	at     span
}

// openFiles opens what can be opened; err names the others.
func openFiles(paths []string) (out files, err error) {
	var errs []error
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, &file{scanner: newScanner(f), path: p, closer: f})
	}
	return out, errors.Join(errs...)
}

type files []*file

// weave calls fn for each head, by time (journal.Record.Before), without changing the order inside a file.
func (l files) weave(fn func(f *file)) {
	for _, f := range l {
		f.head, f.at = f.next()
	}
	for {
		var first *file
		for _, f := range l {
			if f.head != nil && (first == nil || f.head.Before(first.head)) {
				first = f
			}
		}
		if first == nil {
			return
		}
		fn(first)
		first.head, first.at = first.next()
	}
}

// err is why not all was read.
func (l files) err() error {
	var errs []error
	for _, f := range l {
		if f.scanner.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.path, f.scanner.err))
		}
	}
	return errors.Join(errs...)
}

func (l files) close() {
	for _, f := range l {
		_ = f.closer.Close()
	}
}
