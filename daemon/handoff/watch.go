// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package handoff

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/koord-rt/koord-rt/daemon/atomicfile"
)

// DefaultPoll is Options.Poll's default.
const DefaultPoll = 10 * time.Second

// Watcher follows the files. Snapshot may be called from any goroutine; Run from one.
type Watcher struct {
	o    Options
	p    *parts
	last atomic.Pointer[Snapshot]
}

// NewWatcher makes the run directory when it is missing and reads all parts once.
func NewWatcher(o Options) (*Watcher, error) {
	if o.Poll <= 0 {
		o.Poll = DefaultPoll
	}
	if err := atomicfile.Dir(o.RunDir); err != nil {
		return nil, err
	}
	w := &Watcher{o: o, p: newParts(o)}
	w.p.refresh(true)
	w.publish()
	return w, nil
}

// Snapshot is the last good content.
func (w *Watcher) Snapshot() Snapshot { return *w.last.Load() }

func (w *Watcher) publish() Snapshot {
	s := w.p.snapshot(w.p.now())
	w.last.Store(&s)
	return s
}

// Run watches until ctx ends and calls onChange, from its own goroutine only, after each change of content, problem or
// expiry. It returns nil when ctx ends.
func (w *Watcher) Run(ctx context.Context, onChange func(Snapshot)) error {
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.o.RunDir, err)
	}
	defer fs.Close()
	if err := fs.Add(w.o.RunDir); err != nil {
		return fmt.Errorf("watch %s: %w", w.o.RunDir, err)
	}
	poll := time.NewTicker(w.o.Poll)
	defer poll.Stop()
	expiry := time.NewTimer(time.Hour)
	defer expiry.Stop()
	// What changed between NewWatcher and Add has made no event.
	changed := w.p.refresh(false)
	for {
		if changed || w.expired() {
			onChange(w.publish())
		}
		expiry.Reset(w.untilExpiry())
		changed = false
		select {
		case <-ctx.Done():
			return nil
		case <-expiry.C:
		case <-poll.C:
			// A directory that was removed and made again has lost its watch; adding one that stands changes nothing.
			if atomicfile.Dir(w.o.RunDir) == nil {
				_ = fs.Add(w.o.RunDir)
			}
			changed = w.p.refresh(false)
		case e := <-fs.Events:
			changed = w.event(e)
		case <-fs.Errors:
			// The queue overflowed: which files changed is not known.
			changed = w.p.refresh(true)
		}
	}
}

func (w *Watcher) event(e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod {
		return false
	}
	switch filepath.Base(e.Name) {
	case StrategyFile:
		return w.p.refreshStrategy(true)
	case DynamicFile:
		return w.p.dynamic.refresh(true)
	case PodsFile:
		return w.p.pods.refresh(true)
	}
	return false
}

// expired reports that the published dynamic state has run out.
func (w *Watcher) expired() bool {
	d := w.last.Load().Dynamic
	return d.Known && !w.p.now().Before(d.Expires)
}

// untilExpiry is the time until the published dynamic state runs out, an hour when there is none.
func (w *Watcher) untilExpiry() time.Duration {
	d := w.last.Load().Dynamic
	if !d.Known {
		return time.Hour
	}
	return max(min(d.Expires.Sub(w.p.now()), time.Hour), time.Millisecond)
}
