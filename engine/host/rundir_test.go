// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
)

// options are those of a program that goes on without a run directory where usable is given.
func (m *machine) options(t *testing.T, usable func()) Options {
	return Options{
		Config: m.cfg, Writer: "koordlet", Name: "koordlet", Program: "test", Edge: blank{}, Usable: usable,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// spoilt are ways in which a run directory cannot be used: each puts a file or a directory where the other has to be.
var spoilt = map[string]func(runDir string) (path string, spoil func(path string) error){
	"the directory": func(runDir string) (string, func(string) error) { return runDir, file },
	"its lock":      func(runDir string) (string, func(string) error) { return lock.Path(runDir, "koordlet"), dir },
	"its ledger":    func(runDir string) (string, func(string) error) { return ledger.Dir(runDir), file },
}

func file(path string) error { return os.WriteFile(path, nil, 0o600) }
func dir(path string) error  { return os.Mkdir(path, 0o700) }

// Without a run directory that can be used nothing is written to the kernel, and that is told, with the reason; once it can, what is written
// is recorded. A program that may be there once only does not begin.
func TestRunDirThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, spoil := range spoilt {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const group = "/kubepods/podone"
				m := newMachine(t)
				m.cfg.RunDir = filepath.Join(m.cfg.RunDir, "run")
				path, do := spoil(m.cfg.RunDir)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), do(path)); err != nil {
					t.Fatal(err)
				}
				if _, err := New(t.Context(), m.options(t, nil)); err == nil {
					t.Error("it begins without being asked to go on")
				}
				ready := make(chan struct{})
				h, err := New(t.Context(), m.options(t, func() { close(ready) }))
				if err != nil {
					t.Fatal(err)
				}
				idle := plan.Plan{{Target: plan.Target{Level: plan.LevelPod, Cgroup: group, Pod: "one"}, Knob: plan.CPUIdle, Value: plan.Int(1)}}
				before := m.tree.Get(t, group, "cpu.idle")
				for _, r := range h.Apply(t.Context(), idle) {
					if !errors.Is(r.Err, apply.ErrLedger) || !strings.Contains(r.Err.Error(), path) {
						t.Errorf("%s: %s, %v", path, r.Outcome, r.Err)
					}
				}
				if got := m.tree.Get(t, group, "cpu.idle"); got != before {
					t.Errorf("cpu.idle is %s: written without a record", got)
				}
				answer := httptest.NewRecorder()
				metrics.Handler(prometheus.NewRegistry(), h.health).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/healthz", http.NoBody))
				if answer.Code != http.StatusServiceUnavailable || !strings.Contains(answer.Body.String(), path) {
					t.Errorf("/healthz: %d %s", answer.Code, answer.Body)
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- h.keepLedger(ctx) }()
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				<-ready
				for _, r := range h.Apply(t.Context(), idle) {
					if r.Outcome != apply.Written {
						t.Errorf("with the directory: %s, %v", r.Outcome, r.Err)
					}
				}
				records, _, err := ledger.ReadAll(m.cfg.RunDir)
				if err != nil || len(records) != 1 || h.Barred() != nil {
					t.Errorf("recorded %+v, %v; barred: %v", records, err, h.Barred())
				}
				stop()
				if err := errors.Join(<-ended, h.Close(context.WithoutCancel(ctx))); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Who waits for its run directory while another process takes the lock there ends: both would write.
func TestRunDirOfAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		if err := file(ledger.Dir(m.cfg.RunDir)); err != nil {
			t.Fatal(err)
		}
		path := lock.Path(m.cfg.RunDir, "koordlet")
		if err := dir(path); err != nil {
			t.Fatal(err)
		}
		h, err := New(t.Context(), m.options(t, func() { t.Error("it is taken for usable") }))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		other, err := lock.Acquire(path)
		if err != nil {
			t.Fatal(err)
		}
		var held *lock.HeldError
		if err := h.keepLedger(t.Context()); !errors.As(err, &held) {
			t.Errorf("beside another process: %v", err)
		}
		if err := errors.Join(h.Close(t.Context()), other.Release()); err != nil {
			t.Error(err)
		}
	})
}

// The socket for metrics lies in the run directory: it is made as soon as that can be used. With a run directory that can, an address
// that cannot be had ends the start.
func TestMetricsOfARunDirThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.cfg.RunDir = filepath.Join(m.cfg.RunDir, "run")
	socket := filepath.Join(m.cfg.RunDir, "metrics.sock")
	m.cfg.Metrics.Address = "unix:" + socket
	if err := file(m.cfg.RunDir); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	h, err := New(t.Context(), m.options(t, func() { close(ready) }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx, func(ctx context.Context) { <-ctx.Done() }) }()
	if err := os.Remove(m.cfg.RunDir); err != nil {
		t.Fatal(err)
	}
	<-ready
	enginetest.Eventually(t, "an answer on "+socket, func() bool {
		c, err := net.Dial("unix", socket)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := dir(socket); err != nil {
		t.Fatal(err)
	}
	if h, err = New(t.Context(), m.options(t, func() {})); err != nil {
		t.Fatal(err)
	}
	if err := h.Run(t.Context(), func(ctx context.Context) { <-ctx.Done() }); err == nil || !strings.Contains(err.Error(), socket) {
		t.Errorf("with something else in the socket's place: %v", err)
	}
}
