// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package psi

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Watcher waits for any number of triggers with one goroutine. NewWatcher, Run in a goroutine of the caller's, Add and
// Watch.Close at any time. Safe for concurrent use.
type Watcher struct {
	epoll int
	// wake is an eventfd that ends the wait.
	wake int

	mu      sync.Mutex
	watches map[int32]*Watch
	// last is the id of the last watch. Ids, unlike descriptors, are not used again while an event is on its way.
	last   int32
	closed bool
}

// Watch is one trigger of a Watcher.
type Watch struct {
	w    *Watcher
	id   int32
	fd   int
	path string
	fire func(Event)
}

// wakeID is the eventfd's id in the epoll set.
const wakeID = 0

// Event is what a watch reports.
type Event struct {
	// Gone: the cgroup was removed. It is the last event of this watch, which is closed already.
	Gone bool
}

// ErrClosed is returned when a watcher's Run has ended.
var ErrClosed = errors.New("pressure watcher is closed")

// NewWatcher makes a watcher. Run must be called, it frees what was taken here.
func NewWatcher() (*Watcher, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create pressure watcher: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: wakeID})
		if err != nil {
			unix.Close(wake) //nolint:errcheck // only the first error counts
		}
	}
	if err != nil {
		unix.Close(epoll) //nolint:errcheck // only the first error counts
		return nil, fmt.Errorf("create pressure watcher: %w", err)
	}
	return &Watcher{epoll: epoll, wake: wake, watches: map[int32]*Watch{}}, nil
}

// Add sets a trigger on a pressure file. fire is called by the goroutine of Run, one call at a time, and must return soon. It may
// call Add and Close.
func (w *Watcher) Add(path string, t Trigger, fire func(Event)) (*Watch, error) {
	fd, err := arm(path, t)
	if err != nil {
		return nil, err
	}
	watch := &Watch{w: w, fd: fd, path: path, fire: fire}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	watch.id = w.last
	err = ErrClosed
	if !w.closed {
		err = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLPRI, Fd: watch.id})
	}
	if err != nil {
		unix.Close(fd) //nolint:errcheck // only the first error counts
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	w.watches[watch.id] = watch
	return watch, nil
}

// Path is the file that is watched.
func (w *Watch) Path() string { return w.path }

// Close takes the trigger off. An event that is just being delivered may still arrive. Closing twice is no error.
func (w *Watch) Close() {
	w.w.mu.Lock()
	defer w.w.mu.Unlock()
	w.drop()
}

// drop is Close under the lock. Closing the descriptor takes it out of the epoll set and frees the trigger.
func (w *Watch) drop() {
	if w.w.watches[w.id] == w {
		delete(w.w.watches, w.id)
		unix.Close(w.fd) //nolint:errcheck // nothing to do about it
	}
}

// Run waits and calls until ctx ends, then closes every watch and the watcher. It returns nil, or why waiting is impossible.
func (w *Watcher) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, w.stop)
	defer stop()
	defer w.close()
	var events [16]unix.EpollEvent
	for {
		n, err := unix.EpollWait(w.epoll, events[:], -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait for pressure: %w", err)
		}
		for _, e := range events[:n] {
			if e.Fd == wakeID {
				return nil
			}
			w.deliver(e)
		}
	}
}

// stop ends the wait. The descriptor is open as long as the watcher is not closed.
func (w *Watcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) //nolint:errcheck // fails only when it is set already
	}
}

func (w *Watcher) deliver(e unix.EpollEvent) {
	w.mu.Lock()
	watch := w.watches[e.Fd]
	gone := e.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0
	if watch != nil && gone {
		watch.drop()
	}
	w.mu.Unlock()
	if watch != nil {
		watch.fire(Event{Gone: gone})
	}
}

func (w *Watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, watch := range w.watches {
		watch.drop()
	}
	unix.Close(w.wake)  //nolint:errcheck // nothing to do about it
	unix.Close(w.epoll) //nolint:errcheck // nothing to do about it
}
