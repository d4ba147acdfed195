// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package handoff

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/daemon/atomicfile"
	"github.com/koord-rt/koord-rt/daemon/dirwatch"
)

// DefaultPoll is Options.Poll's default.
const DefaultPoll = 10 * time.Second

// Watcher follows the files. Snapshot may be called from any goroutine; Run from one.
type Watcher struct {
	o    Options
	p    *parts
	last atomic.Pointer[Snapshot]
}

// NewWatcher reads all parts once. A run directory that is missing is made by Run, as often as it takes.
func NewWatcher(o Options) *Watcher {
	if o.Poll <= 0 {
		o.Poll = DefaultPoll
	}
	w := &Watcher{o: o, p: newParts(o)}
	w.p.refresh(true)
	w.publish()
	return w
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
	dir := dirwatch.New(dirwatch.Options{Dir: w.o.RunDir, Make: atomicfile.Dir, Poll: w.o.Poll})
	defer dir.Close()
	w.p.blind = dir.Blind()
	// What changed between NewWatcher and now has made no event.
	changed := w.p.refresh(false) || w.p.blind != ""
	expiry := time.NewTimer(time.Hour)
	defer expiry.Stop()
	for {
		if changed || w.expired() {
			onChange(w.publish())
		}
		expiry.Reset(w.untilExpiry())
		e := dir.Next(ctx, expiry.C)
		if e.Kind == dirwatch.Ended {
			return nil
		}
		w.p.blind = dir.Blind()
		changed = w.event(e) || e.Blind
	}
}

// event looks at what an event is about and reports whether anything is different.
func (w *Watcher) event(e dirwatch.Event) bool {
	switch e.Kind {
	case dirwatch.Due:
		return w.p.refresh(false)
	case dirwatch.Lost:
		return w.p.refresh(true)
	}
	switch e.Name {
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
