// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package psi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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
	// shutting are descriptors that are being closed.
	shutting sync.WaitGroup
}

// Watch is one trigger of a Watcher.
type Watch struct {
	w       *Watcher
	id      int32
	path    string
	trigger Trigger
	fire    func(Event)

	// Under the watcher's lock:
	fd int
	// renew is when the kernel is given the trigger anew, zero for never.
	renew time.Time
}

// renewAfter is how long after an event of a trigger it is set anew, if no other has followed. What goes on to stall after an event is
// kept by the kernel until the end of the window. Since Linux 6.7 it looks then, for triggers of who has CAP_SYS_RESOURCE, only if something
// stalls just now, and else keeps it and fires at the next stall, however small and late (pending_event of update_triggers and
// psi_rtpoll_work, kernel/sched/psi.c). It looks ten times in a window.
func renewAfter(t Trigger) time.Duration { return t.Window + t.Window/5 }

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
	watch := &Watch{w: w, fd: fd, path: path, trigger: t, fire: fire}
	if err := w.take(watch); err != nil {
		shut(fd)
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	return watch, nil
}

func (w *Watcher) take(watch *Watch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	w.last++
	watch.id = w.last
	if err := w.poll(watch.fd, watch.id); err != nil {
		return err
	}
	w.watches[watch.id] = watch
	return nil
}

func (w *Watcher) poll(fd int, id int32) error {
	return unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLPRI, Fd: id})
}

// Close takes the trigger off, for which the kernel may need some milliseconds. An event that is just being delivered may still arrive.
// Closing twice is no error.
func (w *Watch) Close() {
	w.w.mu.Lock()
	fd := w.drop()
	w.w.mu.Unlock()
	shut(fd)
}

// drop is Close under the lock. It returns what shut gets without it.
func (w *Watch) drop() (fd int) {
	if w.w.watches[w.id] != w {
		return -1
	}
	delete(w.w.watches, w.id)
	unix.EpollCtl(w.w.epoll, unix.EPOLL_CTL_DEL, w.fd, nil) //nolint:errcheck // it is there
	return w.fd
}

// shut closes a descriptor and so frees its trigger. The kernel waits until nobody looks at it (synchronize_rcu in psi_trigger_destroy), and whoever
// holds the lock would make events wait as long.
func shut(fd int) {
	if fd >= 0 {
		unix.Close(fd) //nolint:errcheck // nothing to do about it
	}
}

// Run waits and calls until ctx ends, then closes every watch and the watcher. It returns nil, or why waiting is impossible.
func (w *Watcher) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, w.stop)
	defer stop()
	defer w.close()
	var events [16]unix.EpollEvent
	for {
		n, err := unix.EpollWait(w.epoll, events[:], w.wait(time.Now()))
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
			w.deliver(e, time.Now())
		}
		w.renewDue(time.Now())
	}
}

// wait is how many milliseconds there are until the next trigger is due to be set anew, -1 for none.
func (w *Watcher) wait(now time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := -1
	for _, watch := range w.watches {
		if watch.renew.IsZero() {
			continue
		}
		if left := int(max(0, watch.renew.Sub(now)+time.Millisecond-1) / time.Millisecond); next < 0 || left < next {
			next = left
		}
	}
	return next
}

// renewDue sets the triggers anew that are due. One that the kernel does not take again stays as it was.
func (w *Watcher) renewDue(now time.Time) {
	var old []int
	for _, watch := range w.due(now) {
		fd, fired := w.rearm(watch, now)
		if fd >= 0 {
			old = append(old, fd)
		}
		if fired {
			watch.fire(Event{})
		}
	}
	if len(old) > 0 {
		w.shutting.Go(func() { // events do not wait for it
			for _, fd := range old {
				shut(fd)
			}
		})
	}
}

func (w *Watcher) due(now time.Time) (out []*Watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, watch := range w.watches {
		if !watch.renew.IsZero() && !watch.renew.After(now) {
			watch.renew = time.Time{}
			out = append(out, watch)
		}
	}
	return out
}

// rearm gives a watch a new trigger, and returns the descriptor of the one that is not needed, -1 for none, and whether the old one has
// fired since the last wait.
func (w *Watcher) rearm(watch *Watch, now time.Time) (spare int, fired bool) {
	fd, err := arm(watch.path, watch.trigger)
	if err != nil {
		return -1, false // its cgroup is gone, which is an event of its own
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watches[watch.id] != watch || w.poll(fd, watch.id) != nil {
		return fd, false
	}
	old := watch.fd
	watch.fd = fd
	unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, old, nil) //nolint:errcheck // it is there
	last := []unix.PollFd{{Fd: int32(old), Events: unix.POLLPRI}}
	if n, err := unix.Poll(last, 0); n == 1 && err == nil && last[0].Revents&unix.POLLPRI != 0 {
		watch.renew, fired = now.Add(renewAfter(watch.trigger)), true
	}
	return old, fired
}

// stop ends the wait. The descriptor is open as long as the watcher is not closed.
func (w *Watcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) //nolint:errcheck // fails only when it is set already
	}
}

func (w *Watcher) deliver(e unix.EpollEvent, now time.Time) {
	w.mu.Lock()
	watch, fd := w.watches[e.Fd], -1
	gone := e.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0
	if watch != nil {
		watch.renew = now.Add(renewAfter(watch.trigger))
		if gone {
			fd = watch.drop()
		}
	}
	w.mu.Unlock()
	shut(fd)
	if watch != nil {
		watch.fire(Event{Gone: gone})
	}
}

func (w *Watcher) close() {
	w.mu.Lock()
	w.closed = true
	var fds []int
	for _, watch := range w.watches {
		fds = append(fds, watch.drop())
	}
	unix.Close(w.wake)  //nolint:errcheck // nothing to do about it
	unix.Close(w.epoll) //nolint:errcheck // nothing to do about it
	w.mu.Unlock()
	for _, fd := range fds {
		shut(fd)
	}
	w.shutting.Wait()
}
