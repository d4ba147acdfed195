// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/koordlet/internal/collect"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/koordlet/internal/publish"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/unit"
)

// A step that does not end is told before what was handed on expires, and is worth a start anew after minutes; one that waits for its turn is
// neither, however long ago the last one was.
func TestPulse(t *testing.T) {
	t.Parallel()
	a, began := New(Options{}), time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := func(after time.Duration) (hung, dead bool) {
		err := a.Hung(began.Add(after))
		if err != nil && !strings.Contains(err.Error(), "since 2026-05-01T12:00:00Z") {
			t.Error(err)
		}
		return err != nil, a.Dead(began.Add(after)) != nil
	}
	for _, c := range []struct {
		busy       bool
		after      time.Duration
		hung, dead bool
	}{
		{false, time.Hour, false, false}, {true, 0, false, false}, {true, 30 * time.Second, false, false}, {true, 31 * time.Second, true, false},
		{true, publish.TTL, true, false}, {true, 5 * time.Minute, true, false}, {true, 5*time.Minute + 1, true, true}, {false, time.Hour, false, false},
	} {
		if a.pulse.rest(); c.busy {
			a.pulse.beat(began)
		}
		if hung, dead := at(c.after); hung != c.hung || dead != c.dead {
			t.Errorf("%+v: hung %v, dead %v", c, hung, dead)
		}
	}
}

// A step between two ticks that hangs is told as one of a tick is, also where it had to wait for its turn.
func TestUrgentStepThatHangs(t *testing.T) {
	t.Parallel()
	g := engine.New(enginetest.New(t, "6.12", "/kubepods/burstable").Options(t, config.Default().Node, unmarked{}, "{}"))
	for name, answered := range map[string]unit.Micros{"at once": 0, "after a pause": 100 * unit.Second} {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int64
			goesOn := make(chan struct{})
			a := New(Options{
				Interval: time.Hour, Engine: g, Scanner: &collect.Scanner{}, Window: window.New(window.Options{}), Pressure: &Pressure{},
				Publisher: publish.New(t.TempDir(), "", time.Now()), Keep: func(decide.State) error { return nil }, Wall: time.Now,
				Now: func() unit.Micros {
					if asked.Add(1) > 1 { // first it is asked whether it is time
						<-goesOn
					}
					return 100 * unit.Second
				},
			})
			a.urgent.answered = answered
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- a.Run(ctx) }()
			a.urgent.wake()
			time.Sleep(time.Second)
			if asked.Load() != 2 {
				t.Errorf("%s: no step is under way", name)
			}
			if now := time.Now(); a.Hung(now) != nil || a.Hung(now.Add(time.Minute)) == nil || a.Dead(now.Add(time.Minute)) != nil || a.Dead(now.Add(6*time.Minute)) == nil {
				t.Errorf("%s: a step that hangs is not told: %v", name, a.Hung(now.Add(time.Minute)))
			}
			close(goesOn)
			synctest.Wait()
			if err := a.Hung(time.Now().Add(time.Hour)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// A strategy that was published a moment before the end is kept for the next boot, unless another agent may be here, whose strategy that is.
func TestEndKeepsTheStrategy(t *testing.T) {
	t.Parallel()
	for other, want := range map[error]uint64{nil: 1, errors.New("another holds the lock"): 0} {
		synctest.Test(t, func(t *testing.T) { // a slow disk takes no time in it
			run, state := t.TempDir(), t.TempDir()
			spec := strategy.Default()
			p := publish.New(run, state, time.Now())
			if _, err := p.Strategy(&spec, time.Now()); err != nil {
				t.Fatal(err)
			}
			a := New(Options{
				Interval: time.Hour, Scanner: &collect.Scanner{}, Publisher: p, Keep: func(decide.State) error { return nil }, Wall: time.Now,
				Now: func() unit.Micros { return 0 }, Alone: func() error { return other },
			})
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := a.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if boot := handoff.Read(handoff.Options{RunDir: t.TempDir(), StateDir: state}); boot.StrategyGeneration != want {
				t.Errorf("beside %v: next boot: %+v", other, boot)
			}
		})
	}
}

// A strategy or pods whose file has vanished, and cannot be written again, are told at each step; what the loops decide is handed on.
func TestUnpublishedIsNotWithheld(t *testing.T) {
	t.Parallel()
	run, now := t.TempDir(), time.Now()
	spec, list := strategy.Default(), &pods.Snapshot{Generation: 1, Pods: []*pods.Pod{{UID: "uid"}}}
	a := New(Options{
		Log: slog.New(slog.DiscardHandler), Publisher: publish.New(run, "", now), Strategy: func() *strategy.Spec { return &spec },
	})
	step := func(after time.Duration) *Look {
		a.failed = false
		l := &Look{Wall: now.Add(after)}
		a.publish(l, list)
		return l
	}
	if l := step(0); l.Withheld != nil || l.Unpublished != nil || a.failed {
		t.Fatalf("withheld: %v, unpublished: %v", l.Withheld, l.Unpublished)
	}
	one, other := filepath.Join(run, handoff.StrategyFile), filepath.Join(run, handoff.PodsFile)
	for _, path := range []string{one, other} {
		if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil { // nothing can take its place
			t.Fatal(err)
		}
	}
	for i := range 2 {
		l := step(publish.TTL/2 + time.Duration(i+1)*time.Second)
		if l.Withheld != nil || l.Unpublished == nil || !strings.Contains(l.Unpublished.Error(), one) || !strings.Contains(a.told["publish pods"], other) || !a.failed {
			t.Errorf("step %d: withheld: %v, unpublished: %v, pods: %q, failed: %v", i, l.Withheld, l.Unpublished, a.told["publish pods"], a.failed)
		}
	}
	if err := errors.Join(os.Remove(one), os.Remove(other)); err != nil {
		t.Fatal(err)
	}
	if l := step(publish.TTL/2 + 3*time.Second); l.Unpublished != nil || a.told["publish pods"] != "" || a.failed {
		t.Errorf("unpublished: %v, pods: %q", l.Unpublished, a.told["publish pods"])
	}
	if got := handoff.Read(handoff.Options{RunDir: run}); got.StrategyGeneration != 1 || got.PodsGeneration != 1 {
		t.Errorf("%+v", got)
	}
}

// What was decided and could not be handed on is told beside the strategy, which could.
func TestWithheld(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	path := filepath.Join(run, handoff.DynamicFile)
	if err := os.Mkdir(path, 0o700); err != nil { // nothing can take its place
		t.Fatal(err)
	}
	spec := strategy.Default()
	a := New(Options{
		Log: slog.New(slog.DiscardHandler), Publisher: publish.New(run, "", time.Now()), Strategy: func() *strategy.Spec { return &spec },
	})
	l := &Look{Wall: time.Now()}
	a.publish(l, pods.New(pods.Options{}).Snapshot())
	if l.Withheld == nil || !strings.Contains(l.Withheld.Error(), path) || l.Unpublished != nil || !a.failed {
		t.Errorf("withheld: %v, unpublished: %v", l.Withheld, l.Unpublished)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l = &Look{Wall: time.Now()}
	if a.publish(l, pods.New(pods.Options{}).Snapshot()); l.Withheld != nil {
		t.Errorf("handed on at last, and still %v", l.Withheld)
	}
}
