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
	files, err := writersFiles(Dir(runDir))
	if err != nil {
		return nil, 0, fmt.Errorf("read ledger: %w", err)
	}
	var lists [][]journal.Record
	var errs []error
	for _, path := range files {
		list, n, err := readFile(path)
		if err != nil {
			errs = append(errs, err)
		}
		torn += n
		lists = append(lists, list)
	}
	return merge(lists), torn, errors.Join(errs...)
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
	br := bufio.NewReaderSize(rd, 64<<10)
	var off int64
	var long []byte
	for {
		line, n, err := readLine(br, &long)
		if err != nil && !errors.Is(err, io.EOF) {
			return torn, err
		}
		if len(bytes.TrimSpace(line)) > 0 {
			var r journal.Record
			if n > maxLine || json.Unmarshal(line, &r) != nil || r.Via == "" {
				torn++
			} else {
				fn(&r, span{off, len(line)})
			}
		}
		off += int64(n)
		if err != nil {
			return torn, nil
		}
	}
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

// merge joins lists by time (journal.Record.Before) without changing the order inside a list.
func merge(lists [][]journal.Record) []journal.Record {
	n := 0
	for _, l := range lists {
		n += len(l)
	}
	out := make([]journal.Record, 0, n)
	for len(out) < n {
		first := -1
		for i, l := range lists {
			if len(l) > 0 && (first < 0 || l[0].Before(&lists[first][0])) {
				first = i
			}
		}
		out = append(out, lists[first][0])
		lists[first] = lists[first][1:]
	}
	return out
}
