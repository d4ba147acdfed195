// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/unit"
)

// readers tells by inotify(7) who has read which files of a record. Reads that follow each other at once are one event, so that a
// file of several blocks counts once; an open in between tells two of them apart.
type readers struct {
	fd   int
	dirs map[int32]string
	// by are the collectors that have read a file, once for each time.
	by map[string][]string
}

func newReaders(t *testing.T, dir string) *readers {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	r := &readers{fd: fd, dirs: map[int32]string{}, by: map[string][]string{}}
	t.Cleanup(func() { unix.Close(fd) }) //nolint:errcheck // nothing was written
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		wd, err := unix.InotifyAddWatch(fd, path, unix.IN_ACCESS|unix.IN_OPEN|unix.IN_ONLYDIR)
		if err == nil {
			r.dirs[int32(wd)] = strings.TrimPrefix(path, dir) //nolint:gosec // a small number
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// take gives a collector what was read since the last time.
func (r *readers) take(t *testing.T, collector string) {
	t.Helper()
	for buf := make([]byte, 1<<16); ; {
		n, err := unix.Read(r.fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < n; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[at]))
			at += unix.SizeofInotifyEvent
			name := string(bytes.TrimRight(buf[at:at+int(e.Len)], "\x00"))
			at += int(e.Len)
			if e.Mask&unix.IN_Q_OVERFLOW != 0 {
				t.Fatal("inotify has lost events")
			}
			if e.Mask&unix.IN_ACCESS != 0 && e.Mask&unix.IN_ISDIR == 0 {
				path := filepath.Join(r.dirs[e.Wd], name)
				r.by[path] = append(r.by[path], collector)
			}
		}
	}
}

// after is a collector that only notes what the one before it has read.
type after func(*tick)

func (f after) collect(t *tick) { f(t) }

// TestReadOnce: whoever needs it, no file is read twice in a tick, though everything is due in each.
func TestReadOnce(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]node.CgroupVersion{"6.18-v1": node.CgroupV1, "6.12-v2": node.CgroupV2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, name, v, nil)
			r.Follow(targets(v))
			got := newReaders(t, filepath.Dir(r.record.Roots.Proc))
			var all []running
			on := slices.DeleteFunc(r.Support(), func(s State) bool { return s.Support == StateOff || s.Support == StateUnsupported })
			for i, c := range r.running {
				all = append(all, c, running{after(func(*tick) { got.take(t, on[i].Collector) })})
			}
			r.running = all
			for second := range 3 {
				clear(got.by)
				r.scan(t)
				for path, by := range got.by {
					if len(by) > 1 {
						t.Errorf("second %d: %s is read by %q", second, path, by)
					}
				}
				if n := len(got.by); n < 20 {
					t.Errorf("second %d: %d files are read", second, n)
				}
				if second == 0 {
					r.record.Show(t, name+"+1s")
				}
				r.now += unit.Second
				got.take(t, "") // what the record has written
			}
		})
	}
}
