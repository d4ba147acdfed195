// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/koordlet/internal/agent"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
)

// A start that fails half way gives back what it has opened: the lock is free, in the same process too.
func TestStartThatFailsGivesBack(t *testing.T) {
	t.Parallel()
	cfg := on(t, enginetest.New(t, "6.12", appCgroup))
	// The prediction, which comes late, cannot be made with it.
	cfg.APIServer = config.APIServer{Mode: config.APIServerAuto, Kubeconfig: kubeconfig(t, "http://127.0.0.1:1")}
	cfg.Predict.CPUPercentile = 1
	_, err := New(t.Context(), Loaded{Config: cfg}, "v1", "koordlet v1", slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err == nil || !strings.Contains(err.Error(), "prediction: percentiles") {
		t.Fatalf("%v, want that of the prediction", err)
	}
	held, err := lock.Acquire(lock.Path(cfg.RunDir, Writer))
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Release(); err != nil {
		t.Error(err)
	}
}

// Directories that cannot be used end no start: what is missing for that is told, each for itself.
func TestStartWithoutDirectories(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(cfg *config.Koordlet) (path string)
		want  string
	}{
		"run":   {func(cfg *config.Koordlet) string { cfg.RunDir = filepath.Join(cfg.RunDir, "run"); return cfg.RunDir }, "write"},
		"audit": {func(cfg *config.Koordlet) string { return filepath.Join(cfg.RunDir, "audit") }, "audit"},
		"state": {func(cfg *config.Koordlet) string {
			cfg.StateDir = filepath.Join(cfg.StateDir, "state")
			return cfg.StateDir
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := on(t, enginetest.New(t, "6.12", appCgroup))
			path := tc.spoil(&cfg)
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			d, err := New(t.Context(), Loaded{Config: cfg}, "v1", "koordlet v1", slog.New(slog.NewTextHandler(t.Output(), nil)))
			if err != nil {
				t.Fatal(err)
			}
			told := map[string]string{}
			for _, l := range barredLoops(d.host.Unrecorded(), d.host.Alone(), d.audit.Closed(), time.Now()) {
				if l.State != status.StateDegraded || !strings.Contains(l.Err, path) {
					t.Errorf("%+v, want %s in it", l, path)
				}
				told[l.Name] = l.Err
			}
			if tc.want != "" && told[tc.want] == "" || (tc.want != "write") != (told["write"] == "") {
				t.Errorf("told: %v", told)
			}
			if err := d.abandon(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// What the loops knew in an earlier life they take up where it can be read at last, and until then nothing of this life stands in its place.
func TestStateOfARunDirThatComesLate(t *testing.T) {
	t.Parallel()
	cfg := on(t, enginetest.New(t, "6.12", appCgroup))
	past := stateFile(filepath.Join(cfg.RunDir, "koordlet-state.json"))
	if err := past.write(decide.State{TierHeld: true}); err != nil {
		t.Fatal(err)
	}
	away := cfg.RunDir + "-away"
	if err := errors.Join(os.Rename(cfg.RunDir, away), os.WriteFile(cfg.RunDir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	d, err := New(t.Context(), Loaded{Config: cfg}, "v1", "koordlet v1", slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(cfg.RunDir), os.Rename(away, cfg.RunDir)); err != nil {
		t.Fatal(err)
	}
	if err := d.keeps(past.write)(decide.State{}); err == nil {
		t.Error("the state of this life is written over that of the earlier one")
	}
	d.usable(func() {
		if len(d.later) != 1 {
			t.Error("writes begin before it has been taken up")
		}
	})
	if _, later := lookOf(t, d); later != 0 {
		t.Error("the loops have not taken it up")
	}
	if err := d.abandon(t.Context()); err != nil {
		t.Error(err)
	}
}

// lookOf runs the loops of a daemon for a step, after which later states are not taken up yet.
func lookOf(t *testing.T, d *Daemon) (_ *agent.Look, later int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.agent.Run(ctx) }()
	enginetest.Eventually(t, "a step of the loops", func() bool { return d.agent.Look() != nil })
	later = len(d.later)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return d.agent.Look(), later
}

// Without its lock another koordlet may be here: nobody is evicted, nothing handed on nor reported. What could be read at the start is not
// read again when the lock is there: the loops have gone on from it.
func TestNothingTwiceWithoutTheLock(t *testing.T) {
	t.Parallel()
	cfg := on(t, enginetest.New(t, "6.12", appCgroup))
	cfg.Evict = config.DefaultKoordlet().Evict
	past := stateFile(filepath.Join(cfg.RunDir, "koordlet-state.json"))
	if err := errors.Join(past.write(decide.State{TierHeld: true}), os.Mkdir(lock.Path(cfg.RunDir, Writer), 0o700)); err != nil {
		t.Fatal(err)
	}
	d, err := New(t.Context(), Loaded{Config: cfg}, "v1", "koordlet v1", slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	if evictFeatures(&cfg.Evict) == 0 {
		t.Fatal("nothing may be evicted anyway")
	}
	look, _ := lookOf(t, d)
	if look.Facts.EvictFeatures != 0 || look.Unpublished == nil || look.Published.Dynamic != 0 {
		t.Errorf("may be evicted: %v; handed on: %+v, %v", look.Facts.EvictFeatures, look.Published, look.Unpublished)
	}
	if _, ok := d.measured(); ok {
		t.Error("it reports")
	}
	if l := barredLoops(d.host.Unrecorded(), d.host.Alone(), nil, time.Now()); len(l) != 1 || !strings.Contains(l[0].Decision, "another koordlet") {
		t.Errorf("told: %+v", l)
	}
	if d.usable(func() {}); len(d.later) != 0 {
		t.Error("what was known is taken for what was missing")
	}
	if err := d.abandon(t.Context()); err != nil {
		t.Error(err)
	}
}
