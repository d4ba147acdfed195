// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// options are those of a program that goes on without a run directory where usable is given.
func (m *machine) options(t *testing.T, usable func(begin func())) Options {
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
				var h *Host
				var early []apply.Result
				idle := plan.Plan{{Target: plan.Target{Level: plan.LevelPod, Cgroup: group, Pod: "one"}, Knob: plan.CPUIdle, Value: plan.Int(1)}}
				var err error
				h, err = New(t.Context(), m.options(t, func(begin func()) {
					early = h.Apply(t.Context(), idle) // nothing is written before all is known
					begin()
					close(ready)
				}))
				if err != nil {
					t.Fatal(err)
				}
				if got := h.Alone(); (got == nil) != (path == ledger.Dir(m.cfg.RunDir)) {
					t.Errorf("alone with %s: %v, which is the lock's to say", path, got)
				}
				before := m.tree.Get(t, group, "cpu.idle")
				for _, r := range h.Apply(t.Context(), idle) {
					if !errors.Is(r.Err, apply.ErrLedger) || !strings.Contains(r.Err.Error(), path) {
						t.Errorf("%s: %s, %v", path, r.Outcome, r.Err)
					}
				}
				if got := m.tree.Get(t, group, "cpu.idle"); got != before {
					t.Errorf("cpu.idle is %s: written without a record", got)
				}
				if code, text := h.asked(); code != http.StatusServiceUnavailable || !strings.Contains(text, path) {
					t.Errorf("/healthz: %d %s", code, text)
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- h.keepLedger(ctx) }()
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				<-ready
				for _, r := range early {
					if !errors.Is(r.Err, apply.ErrLedger) {
						t.Errorf("before the program knows: %s, %v", r.Outcome, r.Err)
					}
				}
				for _, r := range h.Apply(t.Context(), idle) {
					if r.Outcome != apply.Written {
						t.Errorf("with the directory: %s, %v", r.Outcome, r.Err)
					}
				}
				records, _, err := ledger.ReadAll(m.cfg.RunDir)
				if err != nil || len(records) != 1 || h.Barred() != nil || h.Alone() != nil {
					t.Errorf("recorded %+v, %v; barred: %v, alone: %v", records, err, h.Barred(), h.Alone())
				}
				stop()
				if err := errors.Join(<-ended, h.Close(context.WithoutCancel(ctx))); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// asked is what /healthz answers.
func (h *Host) asked() (code int, text string) {
	answer := httptest.NewRecorder()
	metrics.Handler(prometheus.NewRegistry(), h.health).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/healthz", http.NoBody))
	return answer.Code, answer.Body.String()
}

// A ledger that fails after the start is told as at the start, until a record could be written, or nobody has had one to write for a while.
func TestLedgerThatFailsLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const group = "/kubepods/podone"
		m := newMachine(t)
		h, err := New(t.Context(), m.options(t, func(func()) {}))
		if err != nil {
			t.Fatal(err)
		}
		writes := func(value int64) error {
			set := plan.Setting{Target: plan.Target{Level: plan.LevelPod, Cgroup: group, Pod: "one"}, Knob: plan.CPUIdle, Value: plan.Int(value)}
			return h.Apply(t.Context(), plan.Plan{set})[0].Err
		}
		told := func() bool { _, text := h.asked(); return strings.Contains(text, ledger.Dir(m.cfg.RunDir)) }
		if err := writes(1); err != nil || told() {
			t.Fatal(err)
		}
		for range 2 {
			if err := errors.Join(os.RemoveAll(ledger.Dir(m.cfg.RunDir)), file(ledger.Dir(m.cfg.RunDir))); err != nil {
				t.Fatal(err)
			}
			if err := writes(0); !errors.Is(err, apply.ErrLedger) || !told() {
				t.Errorf("not told: %v", err)
			}
			if err := os.Remove(ledger.Dir(m.cfg.RunDir)); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(writes(0), writes(1)); err != nil || told() {
				t.Errorf("told still: %v", err)
			}
		}
		if err := errors.Join(os.RemoveAll(ledger.Dir(m.cfg.RunDir)), file(ledger.Dir(m.cfg.RunDir))); err != nil {
			t.Fatal(err)
		}
		if err := writes(0); !errors.Is(err, apply.ErrLedger) {
			t.Errorf("written: %v", err)
		}
		time.Sleep(toldFor)
		if told() {
			t.Error("told though nothing is to be written")
		}
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if r, err := newRunDir(t.TempDir(), "No Name", nil); err == nil || r != nil {
		t.Errorf("%v beside %v", r, err)
	}
}

// recorded is a host whose ledger has one record.
func recorded(t *testing.T, o Options) *Host {
	t.Helper()
	h, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	set := plan.Setting{Target: plan.Target{Level: plan.LevelPod, Cgroup: "/kubepods/podone", Pod: "one"}, Knob: plan.CPUIdle, Value: plan.Int(1)}
	if r := h.Apply(t.Context(), plan.Plan{set}); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	return h
}

// A compaction gives way to a call: it takes as long as hundreds of them.
func TestCompactionGivesWay(t *testing.T) {
	t.Parallel()
	for _, served := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := recorded(t, newMachine(t).options(t, nil))
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() { _ = h.Engine.Run(ctx, func(context.Context) {}) })
			all.Go(func() { _ = h.keepLedger(ctx) })
			answer := make(chan struct{})
			if served {
				all.Go(func() {
					_, _ = engine.Guard(h.Engine, engine.Call[int]{Work: func(context.Context) (int, error) { <-answer; return 0, nil }})
				})
			}
			synctest.Wait()
			begin := time.Now()
			if err := h.run.ledger.Compact(); err != nil {
				t.Error(err)
			}
			if rested := time.Since(begin) > 0; rested != served {
				t.Errorf("a call is served: %t; it rests: %t", served, rested)
			}
			close(answer)
			stop()
			all.Wait()
			if err := h.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A ledger that is removed is made anew within seconds by a program that has nothing to record, and so is one that could not be for a while; both are told.
func TestLedgerThatIsRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		var log strings.Builder
		o := m.options(t, nil)
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		h := recorded(t, o)
		ctx, stop := context.WithCancel(t.Context())
		var kept sync.WaitGroup
		kept.Go(func() { _ = h.keepLedger(ctx) })
		dir := ledger.Dir(m.cfg.RunDir)
		for _, spoilt := range []bool{false, true} {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if spoilt {
				if err := file(dir); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * takeEvery)
				if err := os.Remove(dir); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(takeEvery + time.Second)
			if records, _, err := ledger.ReadAll(m.cfg.RunDir); err != nil || len(records) != 1 {
				t.Errorf("spoilt %t: %d records, %v", spoilt, len(records), err)
			}
		}
		stop()
		kept.Wait()
		if again, lost := strings.Count(log.String(), "made anew"), strings.Count(log.String(), "lock or ledger is lost"); again != 2 || lost != 1 {
			t.Errorf("told %d times that it is made anew, and %d that it is lost:\n%s", again, lost, log.String())
		}
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What could not be recorded while there was no ledger, and was not written therefore, is written within seconds after there is one again: the next
// look against drift is not waited for.
func TestLedgerThatComesBackIsCaughtUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.cfg.DriftInterval = config.Duration(time.Hour)
		o := m.options(t, nil)
		o.Strategy = protecting(t)
		h := recorded(t, o)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _ = h.Engine.Run(ctx, func(ctx context.Context) { <-ctx.Done() }) })
		all.Go(func() { _ = h.keepLedger(ctx) })
		stands := func(when, want string) {
			t.Helper()
			time.Sleep(takeEvery + time.Second)
			if got := m.tree.Get(t, "/kubepods", "memory.min"); got != want {
				t.Errorf("%s: memory.min is %s, want %s", when, got, want)
			}
		}
		dir := ledger.Dir(m.cfg.RunDir)
		if err := errors.Join(os.RemoveAll(dir), file(dir)); err != nil {
			t.Fatal(err)
		}
		h.Engine.Synchronize([]*workload.Pod{guaranteed("one")}, nil)
		stands("without a ledger", "0")
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		stands("with one", fmt.Sprint(half))
		stop()
		all.Wait()
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Why nobody is answered is logged when it becomes another reason, and not again and again.
func TestNobodyAnsweredIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		run := filepath.Join(m.cfg.RunDir, "run")
		m.cfg.Metrics.Address = "unix:" + filepath.Join(run, "metrics.sock")
		if err := file(run); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		h := &Host{o: m.options(t, nil)}
		h.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		ctx, stop := context.WithTimeout(t.Context(), 4*takeEvery+time.Second)
		defer stop()
		if l := h.awaitListener(ctx, "as it was at the start"); l != nil || strings.Count(log.String(), "nobody is answered") != 1 || !strings.Contains(log.String(), run) {
			t.Errorf("%v, log:\n%s", l, log.String())
		}
	})
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
		h, err := New(t.Context(), m.options(t, func(func()) { t.Error("it is taken for usable") }))
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
	h, err := New(t.Context(), m.options(t, func(begin func()) { begin(); close(ready) }))
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
	if h, err = New(t.Context(), m.options(t, func(func()) {})); err != nil {
		t.Fatal(err)
	}
	if err := h.Run(t.Context(), func(ctx context.Context) { <-ctx.Done() }); err == nil || !strings.Contains(err.Error(), socket) {
		t.Errorf("with something else in the socket's place: %v", err)
	}
}

// A lock that was taken and could not be signed, and whose file somebody has removed since, holds nobody off: it is taken anew.
func TestLockWhoseFileIsGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, err := newRunDir(dir, "koordlet", nil)
	if err != nil {
		t.Fatal(err)
	}
	path := lock.Path(dir, "koordlet")
	if r.lock, err = lock.Take(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := r.lock.Sign(); !errors.Is(err, lock.ErrReplaced) {
		t.Errorf("signed: %v", err)
	}
	if err := r.take(); err != nil {
		t.Fatal(err)
	}
	if !lock.Alive(path) || !r.alone.Load() {
		t.Error("nobody holds the file that stands there now")
	}
	if err := r.release(); err != nil {
		t.Error(err)
	}
}

// One that was signed and whose directory is removed while the program works is taken anew, so that others know of it; where somebody else
// has it meanwhile, that is an error. As long as it cannot be taken, nothing is recorded.
func TestLockThatIsLostLater(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	r, err := newRunDir(dir, "nri", nil)
	if err != nil {
		t.Fatal(err)
	}
	path := lock.Path(dir, "nri")
	want := func(what string, again bool, barred bool) {
		t.Helper()
		got, err := r.retake()
		if got != again || (err != nil) != barred || (r.why() != nil) != barred || r.alone.Load() == barred || lock.Alive(path) == barred {
			t.Errorf("%s: taken again %v, %v; barred: %v, alone %v, seen %v", what, got, err, r.why(), r.alone.Load(), lock.Alive(path))
		}
	}
	if err := r.take(); err != nil {
		t.Fatal(err)
	}
	want("at rest", false, false)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	want("removed", true, false)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want("a file in its place", false, true)
	if err := (&Host{run: r}).unwritten(); err == nil {
		t.Error("a program that ends at the start without its directory calls itself healthy when it has lost it")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	want("and away", true, false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other, err := lock.Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.retake(); !isHeld(err) || r.why() == nil || r.alone.Load() {
		t.Errorf("while another has it: %v", err)
	}
	if err := errors.Join(other.Release(), r.release()); err != nil {
		t.Error(err)
	}
}
