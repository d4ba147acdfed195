// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooks

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Run follows the directory until ctx ends and calls onChange, from its own goroutine only, after each change of servers
// or problems. It makes the directory where it is missing (0755, as upstream's proxy does) and returns nil when ctx ends.
// With no directory configured it only waits.
func (r *Registry) Run(ctx context.Context, onChange func(Snapshot)) error {
	dir := r.o.Config.Dir
	if dir == "" {
		<-ctx.Done()
		return nil
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	defer watcher.Close()
	poll := time.NewTicker(r.o.Poll)
	defer poll.Stop()
	watch(watcher, dir)
	for {
		// The first reading covers what changed between New and watch.
		if r.refresh() {
			onChange(r.Snapshot())
		}
		if !wait(ctx, watcher, dir, poll.C) {
			return nil
		}
	}
}

// watch makes and adds the directory. One that was removed and made again has lost its watch; adding one that stands
// changes nothing. What fails here shows as a problem of the next reading, and is tried again at the next poll.
func watch(w *fsnotify.Watcher, dir string) {
	if os.MkdirAll(dir, 0o755) == nil {
		_ = w.Add(dir)
	}
}

// wait returns true when the directory is to be read again, false when ctx has ended.
func wait(ctx context.Context, w *fsnotify.Watcher, dir string, poll <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-poll:
			watch(w, dir)
			return true
		case e := <-w.Events:
			if e.Op != fsnotify.Chmod {
				return true
			}
		case <-w.Errors:
			return true // the queue overflowed: which files changed is not known
		}
	}
}
