// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package publish

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/model/node"
)

// A disk that hangs holds up nobody who publishes: strategies and dynamic states go on, that the next boot would not know the strategy is told
// after ten seconds, and once the disk works the newest one is kept.
func TestDiskThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		run, state := t.TempDir(), t.TempDir()
		p := New(run, state, time.Now())
		var writes atomic.Int64
		works := make(chan struct{})
		p.copies.write = func(c *handoff.Copy) error {
			writes.Add(1)
			<-works
			return c.Write()
		}
		for i := range 15 {
			percent := int64(30 + i)
			spec := &strategy.Spec{ResourceUsedThresholdWithBE: &strategy.ResourceThresholdStrategy{CPUSuppressThresholdPercent: &percent}}
			if changed, err := p.Strategy(spec, time.Now()); !changed || err != nil {
				t.Errorf("second %d: %v, %v", i, changed, err)
			}
			if _, err := p.Dynamic(node.Dynamic{Normalization: 100}, time.Now()); err != nil {
				t.Error(err)
			}
			err := p.Keep(time.Now())
			if told := err != nil; told != (i >= 10) || told && (!errors.Is(err, handoff.ErrNotKept) || !strings.Contains(err.Error(), state)) {
				t.Errorf("second %d: %v", i, err)
			}
			if got := handoff.Read(handoff.Options{RunDir: run}).StrategyGeneration; got != uint64(i+1) {
				t.Errorf("second %d: who reads has generation %d", i, got)
			}
			time.Sleep(time.Second)
		}
		at := time.Now()
		if p.Close(time.Now()); time.Since(at) != keepAtEnd || writes.Load() != 1 {
			t.Errorf("it ends after %s, and %d writes have begun", time.Since(at), writes.Load())
		}
		close(works)
		for range 2 {
			p.Close(time.Now())
			if err := p.Keep(time.Now()); err != nil {
				t.Error(err)
			}
		}
		p.Close(time.Now())
		if got := handoff.Read(handoff.Options{RunDir: t.TempDir(), StateDir: state}); got.StrategyGeneration != 15 || p.Keep(time.Now()) != nil || writes.Load() != 2 {
			t.Errorf("next boot: generation %d, by %d writes", got.StrategyGeneration, writes.Load())
		}
	})
}

// Of two strategies in a row, while the disk takes the first, the second is kept too when the program ends, as far as both are in two seconds.
func TestEndKeepsTheLast(t *testing.T) {
	t.Parallel()
	for takes, want := range map[time.Duration]uint64{900 * time.Millisecond: 2, 1500 * time.Millisecond: 1, 3 * time.Second: 0} {
		synctest.Test(t, func(t *testing.T) {
			state := t.TempDir()
			p := New(t.TempDir(), state, time.Now())
			p.copies.write = func(c *handoff.Copy) error {
				time.Sleep(takes)
				return c.Write()
			}
			for i := range 2 {
				percent := int64(30 + i)
				spec := &strategy.Spec{ResourceUsedThresholdWithBE: &strategy.ResourceThresholdStrategy{CPUSuppressThresholdPercent: &percent}}
				if _, err := p.Strategy(spec, time.Now()); err != nil {
					t.Error(err)
				}
				if err := p.Keep(time.Now()); err != nil {
					t.Error(err)
				}
			}
			at := time.Now()
			p.Close(at)
			if took := time.Since(at); took != min(2*takes, keepAtEnd) {
				t.Errorf("a disk of %s: it ends after %s", takes, took)
			}
			if got := handoff.Read(handoff.Options{RunDir: t.TempDir(), StateDir: state}).StrategyGeneration; got != want {
				t.Errorf("a disk of %s: the next boot has generation %d, want %d", takes, got, want)
			}
			time.Sleep(takes) // what was begun ends, too
		})
	}
}
