// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooks

import (
	"context"
	"os"

	"github.com/koord-rt/koord-rt/daemon/dirwatch"
)

// Run follows the directory until ctx ends and calls onChange, from its own goroutine only, after each change of servers
// or problems. It makes the directory where it is missing (0755, as upstream's proxy does) and returns nil when ctx ends.
// Where the kernel tells of no changes the directory is read each second, and the snapshot says why. With no directory
// configured it only waits.
func (r *Registry) Run(ctx context.Context, onChange func(Snapshot)) error {
	dir := r.o.Config.Dir
	if dir == "" {
		<-ctx.Done()
		return nil
	}
	watch := dirwatch.New(dirwatch.Options{Dir: dir, Make: makeDir, Poll: r.o.Poll})
	defer watch.Close()
	for {
		// The first reading covers what changed between New and the watch.
		if r.refresh(watch.Blind()) {
			onChange(r.Snapshot())
		}
		if watch.Next(ctx, nil).Kind == dirwatch.Ended {
			return nil
		}
	}
}

func makeDir(dir string) error { return os.MkdirAll(dir, 0o755) }
