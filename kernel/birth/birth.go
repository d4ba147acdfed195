// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package birth tells of cgroups that are yet to be made: when a file of one has been written for the first time, and again.
//
// Inputs are the cgroup's directory and the file's name; the output is a call. It reads and writes no file: the caller looks for
// himself. It imports fsnotify, which knows inotify's races, and the standard library. The kernel tells of mkdir(2) and write(2) in
// cgroupfs as in any other filesystem (inotify(7)): of what user space does, not of what the kernel changes by itself.
package birth

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// Watcher expects any number of cgroups with one inotify descriptor, which it takes at the first. Safe for concurrent use. An event that is
// lost (a full queue, no watches left) is a call that does not come.
type Watcher struct {
	mu     sync.Mutex
	fs     *fsnotify.Watcher
	closed bool
	begun  chan struct{} // closed with the first
	// by the directory that is expected, and how many of them lie in each parent.
	expected map[string]*expected
	parents  map[string]int
	// over are those whose watches nobody needs any more.
	over []*expected
	wake chan struct{}
}

// expected is one cgroup.
type expected struct {
	dir, file string
	// mu is held while written runs; ended means that it must not any more.
	mu      sync.Mutex
	ended   bool
	written func() (enough bool)
}

// New is a Watcher that holds nothing of the kernel's yet.
func New() *Watcher {
	return &Watcher{begun: make(chan struct{}), wake: make(chan struct{}, 1), expected: map[string]*expected{}, parents: map[string]int{}}
}

// Expect has written called when the file name of dir may have been written, from Run's goroutine or from this one, at least once after each
// write, until that has seen enough, or Forget. dir need not exist, its parent must. One that is expected already is expected anew.
func (w *Watcher) Expect(dir, name string, written func() (enough bool)) error {
	dir = filepath.Clean(dir)
	e := &expected{dir: dir, file: filepath.Join(dir, name), written: written}
	w.mu.Lock()
	err := w.add(e)
	w.mu.Unlock()
	if err != nil {
		return err
	}
	if _, err := os.Lstat(dir); err == nil {
		w.born(dir) // before the watch was there, perhaps
	}
	return nil
}

// add begins to watch the directory's parent. The caller holds mu.
func (w *Watcher) add(e *expected) error {
	if w.closed {
		return fmt.Errorf("expect %s: %w", e.dir, fsnotify.ErrClosed)
	}
	if w.fs == nil {
		fs, err := fsnotify.NewWatcher()
		if err != nil {
			return fmt.Errorf("expect %s: %w", e.dir, err)
		}
		w.fs = fs
		close(w.begun)
	}
	parent := filepath.Dir(e.dir)
	if err := w.fs.Add(parent); err != nil {
		return fmt.Errorf("expect %s: %w", e.dir, err)
	}
	w.parents[parent]++
	if old := w.expected[e.dir]; old != nil {
		w.over = append(w.over, old)
	}
	w.expected[e.dir] = e
	return nil
}

// Forget ends what Expect began: when it returns, the call is not running and will not be made. It waits for a call that is, and not for
// the kernel to drop its watches. It must not be called from the call.
func (w *Watcher) Forget(dir string) {
	w.mu.Lock()
	e := w.expected[filepath.Clean(dir)]
	w.mu.Unlock()
	if e == nil {
		return
	}
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	w.ended(e)
}

// call makes the call.
func (w *Watcher) call(e *expected) {
	e.mu.Lock()
	enough := !e.ended && e.written()
	e.ended = e.ended || enough
	e.mu.Unlock()
	if enough {
		w.ended(e)
	}
}

// ended takes one off the list; Run drops its watches.
func (w *Watcher) ended(e *expected) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.expected[e.dir] != e {
		return
	}
	delete(w.expected, e.dir)
	w.over = append(w.over, e)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run makes the calls until ctx ends, and then gives back what the kernel gave.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.end()
	select {
	case <-ctx.Done():
		return nil
	case <-w.begun:
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
			w.drop()
		case <-w.fs.Errors: // what was lost is written by who does not wait for us
		case ev := <-w.fs.Events:
			switch {
			case ev.Has(fsnotify.Create):
				w.born(ev.Name)
			case ev.Has(fsnotify.Write):
				w.wrote(ev.Name)
			}
		}
	}
}

// end closes the descriptor.
func (w *Watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.fs != nil {
		_ = w.fs.Close() // nothing was written
	}
}

// born begins to watch the file of a directory that has been made. What was written before the watch was there nobody tells, so the
// call is made at once, too.
func (w *Watcher) born(dir string) {
	w.mu.Lock()
	e := w.expected[dir]
	if e != nil && !w.closed {
		_ = w.fs.Add(e.file) // a cgroup that is gone again has no more writes to tell of
	}
	w.mu.Unlock()
	if e != nil {
		w.call(e)
	}
}

// wrote makes the call for a file.
func (w *Watcher) wrote(file string) {
	w.mu.Lock()
	e := w.expected[filepath.Dir(file)]
	w.mu.Unlock()
	if e != nil && e.file == file {
		w.call(e)
	}
}

// drop takes back the watches of what is over. A watch holds the kernel's inode of a group that is gone until then.
func (w *Watcher) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.over {
		if w.closed {
			break
		}
		if w.expected[e.dir] == nil {
			_ = w.fs.Remove(e.file) // it has never been made, perhaps
		}
		parent := filepath.Dir(e.dir)
		if w.parents[parent]--; w.parents[parent] == 0 {
			delete(w.parents, parent)
			_ = w.fs.Remove(parent)
		}
	}
	clear(w.over)
	w.over = w.over[:0]
}
