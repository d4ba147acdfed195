// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/koord-rt/koord-rt/model/journal"
)

const (
	// tailChunk is what is read of a file at once, from its end to its beginning; tailBytes is how far back Tail looks.
	tailChunk = 64 << 10
	tailBytes = 8 << 20
)

// Tail is the newest records of all writers, newest first: at most n, and none from before since when that is not zero.
// Unlike ReadAll it reads the ends of the files only, at most 8 MiB of each. Records of one writer stay in the reverse of
// the order in which they were written, whatever the clock did; a writer's first record from before since ends its part.
// Lines that cannot be read are passed over. Files that could not be read are named by err; the records of the others are
// returned all the same.
func Tail(runDir string, n int, since time.Time) ([]journal.Record, error) {
	return TailWhile(runDir, n, func(r *journal.Record) bool { return since.IsZero() || !r.Time.Before(since) })
}

// TailWhile is Tail with a question in place of the time: a writer's first record that is not wanted ends its part.
func TailWhile(runDir string, n int, wanted func(*journal.Record) bool) ([]journal.Record, error) {
	files, err := writersFiles(Dir(runDir))
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	var lists [][]journal.Record
	var errs []error
	for _, path := range files {
		list, err := tailFile(path, n, wanted)
		if err != nil {
			errs = append(errs, err)
		}
		lists = append(lists, list)
	}
	return mergeNewest(lists, n), errors.Join(errs...)
}

func tailFile(path string, n int, wanted func(*journal.Record) bool) ([]journal.Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	var list []journal.Record
	err = backward(f, st.Size(), tailChunk, func(line []byte) bool {
		if len(list) >= n {
			return false
		}
		var r journal.Record
		if json.Unmarshal(line, &r) != nil || r.Via == "" {
			return true
		}
		if !wanted(&r) {
			return false
		}
		list = append(list, r)
		return true
	})
	if err != nil {
		return list, fmt.Errorf("read ledger %s: %w", path, err)
	}
	return list, nil
}

// backward calls fn for each line of the first size bytes, the last one first, until fn says that it has enough. Empty
// lines and those longer than maxLine are passed over. The line is valid during the call only.
func backward(f io.ReaderAt, size int64, chunk int, fn func(line []byte) bool) error {
	// head is the beginning, as far as it has been read, of the line that the next chunk ends in; tooLong says that it
	// was given up.
	var head []byte
	tooLong := false
	for off := size; off > 0 && size-off < tailBytes; {
		n := min(int64(chunk), off)
		off -= n
		part := make([]byte, n, int(n)+len(head))
		if _, err := f.ReadAt(part, off); err != nil {
			return err
		}
		last := bytes.LastIndexByte(part, '\n')
		part = append(part, head...)
		for last >= 0 {
			line := part[last+1:]
			if !tooLong && len(line) > 0 && len(line) <= maxLine && !fn(line) {
				return nil
			}
			tooLong, part = false, part[:last]
			last = bytes.LastIndexByte(part, '\n')
		}
		if head = part; len(head) > maxLine {
			head, tooLong = nil, true
		}
		if off == 0 && !tooLong && len(head) > 0 {
			fn(head)
		}
	}
	return nil
}

// mergeNewest joins lists, each newest first, by time without changing the order inside a list.
func mergeNewest(lists [][]journal.Record, n int) []journal.Record {
	var out []journal.Record
	for len(out) < n {
		first := -1
		for i, l := range lists {
			if len(l) > 0 && (first < 0 || l[0].Time.After(lists[first][0].Time)) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		out = append(out, lists[first][0])
		lists[first] = lists[first][1:]
	}
	return out
}
