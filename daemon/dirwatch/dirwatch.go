// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package dirwatch tells of changes in one directory: by inotify as long as the kernel gives it, by the clock when it does not.
//
// Inputs are the directory and how often it is to be looked at anyway; outputs are [Event] values, and why nothing but the
// clock tells of changes (Blind). A node on which nobody can watch any more, or a directory that is removed, replaced and
// made again, is no reason to end: the watch is taken up again as soon as it can be had. It reads no file. It imports
// fsnotify and the standard library.
package dirwatch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// BlindPoll is the longest time between two looks while no event can come.
const BlindPoll = time.Second

// Kind of an Event.
type Kind int

// Kinds of events.
const (
	// Ended: the context has.
	Ended Kind = iota
	// Woken: the channel of the caller's had something.
	Woken
	// File: the file Name was made, written, renamed or removed.
	File
	// Due: it is time to look at everything, in case an event was lost.
	Due
	// Lost: what changed is not known, look at everything as if it had changed.
	Lost
)

// Event is what Next waited for. Blind says that the answer of Watch.Blind is another than at the last event.
type Event struct {
	Kind  Kind
	Name  string
	Blind bool
}

// Options of a Watch.
type Options struct {
	// Dir is required. Make makes it where it is missing; optional.
	Dir  string
	Make func(dir string) error
	// Poll is required: the time between two looks without an event. While no event can come it is at most BlindPoll.
	Poll time.Duration
}

// Watch follows one directory. It belongs to one goroutine.
type Watch struct {
	o     Options
	fs    *fsnotify.Watcher // nil while the kernel gives none
	tick  *time.Ticker
	blind string
}

// New begins to watch. What cannot be watched is in Blind, not an error. Close it.
func New(o Options) *Watch {
	o.Dir = filepath.Clean(o.Dir) // as events name it
	w := &Watch{o: o}
	w.tick = time.NewTicker(o.Poll)
	w.again(true)
	return w
}

// Blind says why no event tells of changes and within which time they are noticed all the same; empty when events do.
func (w *Watch) Blind() string { return w.blind }

// Close gives back what the kernel gave.
func (w *Watch) Close() {
	w.tick.Stop()
	w.drop()
}

func (w *Watch) drop() {
	if w.fs != nil {
		_ = w.fs.Close() // nothing was written
		w.fs = nil
	}
}

// Next waits for the next event. wake is the caller's own reason to wake up; nil for none.
func (w *Watch) Next(ctx context.Context, wake <-chan time.Time) Event {
	for {
		var events <-chan fsnotify.Event
		var errs <-chan error
		if w.fs != nil {
			events, errs = w.fs.Events, w.fs.Errors
		}
		select {
		case <-ctx.Done():
			return Event{Kind: Ended}
		case <-wake:
			return Event{Kind: Woken}
		case <-w.tick.C:
			return Event{Kind: Due, Blind: w.again(true)}
		case e := <-events:
			switch {
			case e.Name == w.o.Dir && e.Has(fsnotify.Remove|fsnotify.Rename):
				// It is not made here: whoever replaces a directory removes it first, and would find ours in its place.
				return Event{Kind: Lost, Blind: w.again(false)}
			case e.Op != fsnotify.Chmod:
				return Event{Kind: File, Name: filepath.Base(e.Name)}
			}
		case err := <-errs:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				return Event{Kind: Lost}
			}
			// A descriptor that cannot be read fails each time: better none, until the next look.
			w.drop()
			return Event{Kind: Lost, Blind: w.see(fmt.Errorf("read events of %s: %w", w.o.Dir, err))}
		}
	}
}

// again has the kernel tell of changes in the directory that stands at the path now, and reports whether Blind changed. One that
// was removed or replaced has lost its watch; adding one that is watched changes nothing.
func (w *Watch) again(mkdir bool) bool {
	var err error
	if mkdir && w.o.Make != nil {
		err = w.o.Make(w.o.Dir)
	}
	if err == nil && w.fs == nil {
		w.fs, err = fsnotify.NewWatcher()
	}
	if err == nil {
		if err = w.fs.Add(w.o.Dir); err != nil {
			err = fmt.Errorf("watch %s: %w", w.o.Dir, err)
		}
	}
	return w.see(err)
}

// see takes over why the directory cannot be watched, nil when it can, and the pace that goes with it.
func (w *Watch) see(err error) (changed bool) {
	before := w.blind
	if w.blind = reason(w.o.Poll, err); (w.blind == "") != (before == "") {
		w.tick.Reset(pace(w.o.Poll, err))
	}
	return w.blind != before
}

// pace is how often a directory is looked at.
func pace(poll time.Duration, err error) time.Duration {
	if err != nil {
		return min(poll, BlindPoll)
	}
	return poll
}

func reason(poll time.Duration, err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("changes are noticed within %s only, the kernel does not tell of them (fs.inotify.max_user_instances, max_user_watches): %v", pace(poll, err), err)
}
