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
	// watching is held over the kernel's calls for watches, mu for memory only; who holds both took watching first.
	watching sync.Mutex
	fs       *fsnotify.Watcher
	closed   bool
	begun    chan struct{}  // closed with the first
	parents  map[string]int // how many expected directories lie in each, with those that are over and still watched

	mu       sync.Mutex
	expected map[string]*expected // by the directory
	over     []*expected          // those whose watches nobody needs any more
	wake     chan struct{}
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
	if err := w.add(e); err != nil {
		return fmt.Errorf("expect %s: %w", dir, err)
	}
	w.mu.Lock()
	old := w.expected[dir]
	w.expected[dir] = e
	w.mu.Unlock()
	if old != nil {
		old.end()
		w.release(old)
	}
	if _, err := os.Lstat(dir); err == nil {
		w.born(dir) // before the watch was there, perhaps
	}
	return nil
}

// add begins to watch the directory's parent.
func (w *Watcher) add(e *expected) error {
	w.watching.Lock()
	defer w.watching.Unlock()
	if w.closed {
		return fsnotify.ErrClosed
	}
	if w.fs == nil {
		fs, err := fsnotify.NewWatcher()
		if err != nil {
			return err
		}
		w.fs = fs
		close(w.begun)
	}
	parent := filepath.Dir(e.dir)
	if err := w.fs.Add(parent); err != nil {
		return err
	}
	w.parents[parent]++
	return nil
}

// Forget ends what Expect began: when it returns, the call is not running and will not be made. It waits for a call that is, and not for
// the kernel to drop its watches. It must not be called from the call.
func (w *Watcher) Forget(dir string) {
	dir = filepath.Clean(dir)
	w.mu.Lock()
	e := w.expected[dir]
	delete(w.expected, dir)
	w.mu.Unlock()
	if e != nil {
		e.end()
		w.release(e)
	}
}

// end waits for a call that is under way and forbids any other.
func (e *expected) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
}

// call makes the call.
func (w *Watcher) call(e *expected) {
	e.mu.Lock()
	enough := !e.ended && e.written()
	e.ended = e.ended || enough
	e.mu.Unlock()
	if !enough {
		return
	}
	w.mu.Lock()
	mine := w.expected[e.dir] == e
	if mine {
		delete(w.expected, e.dir)
	}
	w.mu.Unlock()
	if mine {
		w.release(e)
	}
}

// release has Run drop the watches of one that is off the list.
func (w *Watcher) release(e *expected) {
	w.mu.Lock()
	w.over = append(w.over, e)
	w.mu.Unlock()
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
	w.watching.Lock()
	defer w.watching.Unlock()
	w.closed = true
	if w.fs != nil {
		_ = w.fs.Close() // nothing was written
	}
}

// of is who expects a directory.
func (w *Watcher) of(dir string) *expected {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.expected[dir]
}

// born begins to watch the file of a directory that has been made. What was written before the watch was there nobody tells, so the
// call is made at once, too.
func (w *Watcher) born(dir string) {
	e := w.of(dir)
	if e == nil {
		return
	}
	w.watching.Lock()
	if !w.closed && w.of(dir) == e { // else its watches may have been dropped already
		_ = w.fs.Add(e.file) // a cgroup that is gone again has no more writes to tell of
	}
	w.watching.Unlock()
	w.call(e)
}

// wrote makes the call for a file.
func (w *Watcher) wrote(file string) {
	e := w.of(filepath.Dir(file))
	if e != nil && e.file == file {
		w.call(e)
	}
}

// drop takes back the watches of what is over. A watch holds the kernel's inode of a group that is gone until then.
func (w *Watcher) drop() {
	w.watching.Lock()
	defer w.watching.Unlock()
	w.mu.Lock()
	over := w.over
	w.over = nil
	w.mu.Unlock()
	for _, e := range over {
		if w.closed {
			return
		}
		if w.of(e.dir) == nil {
			_ = w.fs.Remove(e.file) // it has never been made, perhaps
		}
		parent := filepath.Dir(e.dir)
		if w.parents[parent]--; w.parents[parent] == 0 {
			delete(w.parents, parent)
			_ = w.fs.Remove(parent)
		}
	}
}
