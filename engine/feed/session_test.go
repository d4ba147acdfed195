// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package feed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/feed"
)

var (
	errAway = errors.New("away")
	pace    = config.Reconnect{Min: config.Duration(500 * time.Millisecond), Max: config.Duration(3 * time.Second)}
)

// runtime answers the three questions and notes when they were asked, in seconds since the start.
type runtime struct {
	*feed.Keeper
	engine *engine.Engine
	start  time.Time
	cancel context.CancelFunc
	ended  chan struct{}

	mu    sync.Mutex
	asked []string
	// away: nothing answers. missed is how many lists more cannot be read whole.
	away   bool
	missed int
	// listing is called by each list; may be nil.
	listing func()
}

func newRuntime(t *testing.T, away bool, missed int) *runtime {
	t.Helper()
	m, err := metrics.NewEngine(prometheus.NewRegistry(), "test")
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.DefaultProxy().Node
	r := &runtime{start: time.Now(), ended: make(chan struct{}), away: away, missed: missed}
	r.engine = engine.New(engine.Options{
		Config: cfg, Log: slog.New(slog.DiscardHandler), Metrics: m, Views: engine.NewViews(cfg, engine.Static{}, nil, "test"),
	})
	r.Keeper = feed.New(feed.Options{
		Pace: pace, Engine: r.engine,
		Hello: func(context.Context) error { return r.ask("hello") },
		Ping:  func(context.Context) error { return r.ask("ping") },
		List: func(_ context.Context, first bool) (bool, error) {
			err := r.ask(fmt.Sprintf("list first=%v", first))
			if r.listing != nil {
				r.listing()
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.missed--
			return r.missed >= 0, err
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() { defer close(r.ended); r.Run(ctx) }()
	return r
}

func (r *runtime) ask(what string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, fmt.Sprintf("%g %s", time.Since(r.start).Seconds(), what))
	if r.away {
		return errAway
	}
	return nil
}

// set changes what it answers from now on.
func (r *runtime) set(away bool, missed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away, r.missed = away, missed
}

// until lets time pass and gives what has been asked in it.
func (r *runtime) until(seconds float64) []string {
	time.Sleep(time.Duration(seconds*float64(time.Second)) - time.Since(r.start))
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.asked)
	r.asked = nil
	return out
}

func (r *runtime) synced() bool {
	select {
	case <-r.Synced():
		return true
	default:
		return false
	}
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// The list is taken in whole until clients are served; what has come since is added after the runtime was away.
func TestRuntimeGoesAndComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime(t, false, 0)
		want(t, r.until(0.1), "0 hello", "0 list first=true")
		if !r.synced() || !r.engine.Connected() {
			t.Error("not connected")
		}
		want(t, r.until(4.1), "2 ping", "4 ping")
		r.set(true, 0)
		want(t, r.until(6.1), "6 ping")
		if r.engine.Connected() {
			t.Error("still connected")
		}
		r.set(false, 0)
		want(t, r.until(6.6), "6.5 hello", "6.5 list first=true")
		r.Serving()
		r.set(true, 0)
		want(t, r.until(8.6), "8.5 ping")
		r.set(false, 0)
		want(t, r.until(10), "9.5 hello", "9.5 list first=false") // the last session was too short for a fresh wait
		r.cancel()
		<-r.ended
		if r.engine.Connected() {
			t.Error("connected after the end")
		}
	})
}

// A runtime that is not there is asked at growing intervals; one that was there for a while is asked soon.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime(t, true, 0)
		want(t, r.until(10), "0 hello", "0.5 hello", "1.5 hello", "3.5 hello", "6.5 hello", "9.5 hello")
		if r.synced() {
			t.Error("synchronized without a runtime")
		}
		r.set(false, 0)
		if got := r.until(24); len(got) != 7 || got[0] != "12.5 hello" || got[6] != "22.5 ping" {
			t.Errorf("asked %v", got)
		}
		r.set(true, 0)
		want(t, r.until(25.9), "24.5 ping", "25 hello")
		r.cancel()
		<-r.ended
	})
}

// Who is served while the first list is under way may remove what is in it: another list tells.
func TestServedDuringTheFirstList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime(t, true, 0)
		r.until(0.1)
		r.listing = func() { r.Serving() }
		r.set(false, 0)
		want(t, r.until(5), "0.5 hello", "0.5 list first=true", "2.5 ping", "2.5 list first=false", "4.5 ping")
		r.cancel()
		<-r.ended
	})
}

// What could not be read of the list is asked for again with the next signs of life, five times in a session.
func TestMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime(t, false, 2)
		want(t, r.until(7), "0 hello", "0 list first=true", "2 ping", "2 list first=false", "4 ping", "4 list first=false", "6 ping")
		r.set(true, 0)
		want(t, r.until(8.1), "8 ping")
		r.set(false, 100)
		if got := r.until(24.9); len(got) != 2+5*2+3 || got[1] != "8.5 list first=true" || !slices.Contains(got, "18.5 list first=false") {
			t.Errorf("asked %v", got)
		}
		r.cancel()
		<-r.ended
	})
}

// A cut call makes it look at once.
func TestLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime(t, false, 0)
		r.until(0.5)
		r.Look()
		want(t, r.until(1), "0.5 ping")
		r.set(true, 0)
		r.Look()
		want(t, r.until(1.4), "1 ping")
		if r.engine.Connected() {
			t.Error("still connected")
		}
		r.cancel()
		<-r.ended
	})
}

// It ends a wait, too: whoever asks has heard of the runtime. The waits grow by those only that were over.
func TestLookWhileAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime(t, true, 0)
		want(t, r.until(2), "0 hello", "0.5 hello", "1.5 hello")
		r.Look()
		want(t, r.until(4.5), "2 hello", "4 hello")
		r.set(false, 0)
		r.Look()
		want(t, r.until(5), "4.5 hello", "4.5 list first=true")
		if !r.synced() || !r.engine.Connected() {
			t.Error("not connected")
		}
		r.cancel()
		<-r.ended
	})
}
