// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"time"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// filePoll is how often the strategy file is looked at. A person edits it; two seconds are soon enough, and a look is
// one stat.
const filePoll = 2 * time.Second

// strategyFile follows the node's own strategy. A file that is half written or wrong is reported once, and the last good
// one holds.
type strategyFile struct {
	path string
	set  func(*strategy.Spec, string)
	// refused is told each content that cannot be used.
	refused func(path string, err error)
	log     *slog.Logger
	// holds is the strategy in force: at first what was read at the start.
	holds *strategy.Spec
	seen  seen
}

func (f *strategyFile) run(ctx context.Context) error { return follow(ctx, f.path, f.look) }

// look reads the file when it has changed, and the first time in any case: it may have changed since the start has read it.
func (f *strategyFile) look() {
	if !f.seen.news(f.path) {
		return
	}
	spec, err := ReadStrategy(f.path)
	if err != nil {
		f.refused(f.path, fmt.Errorf("the last good one holds: %w", err))
		return
	}
	f.take(spec)
}

// take puts a strategy in force where it is another one.
func (f *strategyFile) take(spec *strategy.Spec) {
	if reflect.DeepEqual(spec, f.holds) {
		return
	}
	f.holds = spec
	f.log.Info("strategy file was read", "file", f.path, "present", spec != nil)
	f.set(spec, f.path)
}

// follow looks at a file until ctx ends; without one it only waits.
func follow(ctx context.Context, path string, look func()) error {
	if path == "" {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(filePoll)
	defer tick.Stop()
	for {
		look()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// seen is a file as it was at the last look, once there has been one.
type seen struct {
	last   os.FileInfo
	looked bool
}

// news reports whether the file is another one than at the last look, or has never been looked at.
func (s *seen) news(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		info = nil
	}
	if s.looked && same(s.last, info) {
		return false
	}
	s.last, s.looked = info, true
	return true
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
