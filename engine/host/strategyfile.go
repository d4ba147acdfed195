// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"errors"
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
	// inline reads the strategy that stands in the configuration file, whose other parts need a restart; nil when the file
	// is a strategy alone.
	inline func([]byte) (*strategy.Spec, error)
	set    func(*strategy.Spec, string)
	// refused is told each content that cannot be used.
	refused func(path string, err error)
	log     *slog.Logger
	// holds is the strategy in force: at first what was read at the start.
	holds *strategy.Spec
	// last is the file at the last look, once there has been one.
	last   os.FileInfo
	looked bool
}

func (f *strategyFile) run(ctx context.Context) error {
	if f.path == "" {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(filePoll)
	defer tick.Stop()
	for {
		f.look()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look reads the file when it has changed, and the first time in any case: it may have changed since the start has read it.
func (f *strategyFile) look() {
	info, err := os.Stat(f.path)
	if err != nil {
		info = nil
	}
	if f.looked && same(f.last, info) {
		return
	}
	f.last, f.looked = info, true
	spec, err := f.read()
	if err != nil {
		f.refused(f.path, fmt.Errorf("the last good one holds: %w", err))
		return
	}
	if spec == nil && f.inline != nil {
		f.refused(f.path, errors.New("the configuration file holds no strategy any more: the last one holds"))
		return
	}
	if reflect.DeepEqual(spec, f.holds) {
		return
	}
	f.holds = spec
	f.log.Info("strategy file was read", "file", f.path, "present", spec != nil)
	f.set(spec, f.path)
}

func (f *strategyFile) read() (*strategy.Spec, error) {
	if f.inline == nil {
		return ReadStrategy(f.path)
	}
	data, err := ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	return f.inline(data)
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
