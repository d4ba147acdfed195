// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/koordlet/internal/agent"
	"github.com/koord-rt/koord-rt/koordlet/internal/collect"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/report"
	"github.com/koord-rt/koord-rt/policy/policytest"
)

// hanging is a file that nobody answers for once it hangs, as on a disk that does not, so that the step that reads it stands still.
type hanging struct {
	t    *testing.T
	path string
	once sync.Once
}

func newHanging(t *testing.T) *hanging {
	t.Helper()
	return &hanging{t: t, path: filepath.Join(t.TempDir(), "cpu_manager_state")}
}

// begin has it hang until release, or the end of the test.
func (h *hanging) begin() {
	h.t.Helper()
	if err := unix.Mkfifo(h.path, 0o600); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(h.release)
}

func (h *hanging) release() {
	h.once.Do(func() {
		answers, err := os.OpenFile(h.path, os.O_RDWR, 0)
		if err != nil {
			h.t.Error(err)
			return
		}
		if err := errors.Join(os.Remove(h.path), answers.Close()); err != nil {
			h.t.Error(err)
		}
	})
}

// clock is the time of day and some more.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *clock) set(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

// text is a log that is read while it is written.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *text) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(line)
}

func (l *text) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), part)
}

// sick is what /healthz answers on a unix socket, and with what code.
func sick(t *testing.T, socket string) (code int, why string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://koordlet/healthz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Error(err)
	}
	return answer.StatusCode, string(b)
}

// A step that hangs, here in a file that nobody answers for: half a minute later nothing is reported, NodeSLO.status says since when nothing
// is decided, and so do each loop that people see, /healthz and the log. Once it goes on all is as before.
func TestLoopsThatHang(t *testing.T) {
	t.Parallel()
	const since = "have not gone on since"
	file, socket := newHanging(t), filepath.Join(t.TempDir(), "metrics.sock")
	var wall clock
	var log text
	d, api := whole(t, func(cfg *config.Koordlet) {
		cfg.Host.KubeletCPUManagerState, cfg.Metrics.Address = file.path, "unix:"+socket
		if err := os.WriteFile(filepath.Join(cfg.RunDir, "audit"), nil, 0o600); err != nil { // no directory: events are not kept
			t.Fatal(err)
		}
	}, func(d *Daemon) { d.now, d.log = wall.now, slog.New(slog.NewTextHandler(&log, nil)) })
	enginetest.Eventually(t, "NodeSLO.status", func() bool { return tells(api)["nodeslos"] > 0 })
	file.begin()
	var last *agent.Look
	enginetest.Eventually(t, "a step that hangs", func() bool {
		last = d.agent.Look()
		return time.Since(last.Wall) > 4*time.Second && d.agent.Hung(time.Now().Add(time.Minute)) != nil
	})
	var f report.InForce
	stands := func(at time.Time) bool {
		var ok bool
		f, ok = d.standing(at, &takeover{}, &applied{})
		return ok
	}
	rows := func(at time.Time) map[string]status.Loop {
		out := map[string]status.Loop{}
		for _, row := range d.facts(func() []collect.State { return nil }, at).Loops {
			out[row.Name] = row
		}
		return out
	}
	now := time.Now()
	if _, ok := d.measuredAt(now); !ok {
		t.Error("nothing is reported a few seconds after the last step")
	}
	if !stands(now) || f.Problem != "" {
		t.Errorf("a few seconds after the last step: %+v", f)
	}
	for name, row := range rows(now) {
		if name == "loops" || strings.Contains(row.Err, since) {
			t.Errorf("a few seconds after the last step: %+v", row)
		}
	}
	if code, why := sick(t, socket); code != http.StatusOK {
		t.Errorf("a few seconds after the last step: %d %s", code, why)
	}
	if _, ok := d.measuredAt(now.Add(time.Minute)); ok {
		t.Error("it is reported as measured what nobody has measured")
	}
	if !stands(now.Add(time.Minute)) || f.Pending || !strings.Contains(f.Problem, since) {
		t.Errorf("a minute later: %+v", f)
	}
	for _, s := range f.Features {
		if s.Feature == "interference" && (s.State != status.StateDegraded || !strings.Contains(s.Detail, since)) {
			t.Errorf("%+v", s)
		}
	}
	later := rows(now.Add(time.Minute))
	for name, row := range later {
		if row.State == status.StateActive || row.State == status.StateDegraded && !strings.Contains(row.Err, since) {
			t.Errorf("a minute later: %s: %+v", name, row)
		}
	}
	for _, name := range []string{"loops", "interference", "predict", "audit"} {
		if later[name].State != status.StateDegraded {
			t.Errorf("a minute later: %s: %+v", name, later[name])
		}
	}
	wall.set(time.Minute)
	if code, why := sick(t, socket); code != http.StatusServiceUnavailable || !strings.Contains(why, since) {
		t.Errorf("a minute later: %d %s", code, why)
	}
	enginetest.Eventually(t, "the log says so", func() bool { return log.has("the loops hang") })
	file.release()
	enginetest.Eventually(t, "the loops go on", func() bool { return d.agent.Look() != last })
	wall.set(0)
	if _, ok := d.measuredAt(time.Now()); !ok || !stands(time.Now()) || f.Problem != "" {
		t.Errorf("when they go on: %v, %+v", ok, f)
	}
	if code, why := sick(t, socket); code != http.StatusOK {
		t.Errorf("when they go on: %d %s", code, why)
	}
	enginetest.Eventually(t, "the log says that, too", func() bool { return log.has("the loops go on") })
}

// systemd's watchdog is pinged while a step hangs for less than five minutes, and not when it has for longer. It goes by the environment, which is
// the process's, so that no other test may run beside this one.
func TestWatchdogOfTheLoops(t *testing.T) {
	dir, err := os.MkdirTemp("", "notify") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixgram"}
	systemd, err := net.ListenUnixgram("unixgram", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = systemd.Close() })
	const interval = 100 * time.Millisecond
	t.Setenv("NOTIFY_SOCKET", at.Name)
	t.Setenv("WATCHDOG_USEC", strconv.FormatInt(interval.Microseconds(), 10))
	t.Setenv("WATCHDOG_PID", "")
	pinged := func(within time.Duration) bool {
		for until := time.Now().Add(within); ; {
			var b [64]byte
			if err := systemd.SetReadDeadline(until); err != nil {
				t.Fatal(err)
			}
			n, err := systemd.Read(b[:])
			if err != nil || string(b[:n]) == "WATCHDOG=1" {
				return err == nil
			}
		}
	}
	silent := func() bool { return !pinged(10 * interval) }
	file := newHanging(t)
	var wall clock
	d, _ := whole(t, func(cfg *config.Koordlet) { cfg.Host.KubeletCPUManagerState = file.path }, func(d *Daemon) { d.now = wall.now })
	enginetest.Eventually(t, "a step", func() bool { return d.agent.Look() != nil })
	file.begin()
	enginetest.Eventually(t, "a step that hangs", func() bool {
		return time.Since(d.agent.Look().Wall) > 1500*time.Millisecond && d.agent.Hung(time.Now().Add(time.Minute)) != nil
	})
	wall.set(4 * time.Minute)
	for until := time.Now().Add(15 * interval); time.Now().Before(until); { // pings of before are there, too
		if silent() {
			t.Fatal("not pinged after four minutes")
		}
	}
	wall.set(6 * time.Minute)
	enginetest.Eventually(t, "no ping after six minutes", silent)
	file.release()
	enginetest.Eventually(t, "a ping when they go on", func() bool { return !silent() })
}

// While the dynamic state cannot be written, and while the loops hang, no loop is active: not for people, and not for the cluster.
func TestLoopsThatDoNotReachThePods(t *testing.T) {
	t.Parallel()
	cfg := config.DefaultKoordlet()
	cfg.Evict.Mode = config.ModeActive
	v := policytest.YAML(t, policytest.View(), "{resourceUsedThresholdWithBE: {enable: true}, cpuBurstStrategy: {policy: auto}}")
	full, stuck := errors.New("write dynamic.json: no space left on device"), errors.New("the loops have not gone on")
	reach := []string{"cpu-suppress", "cfs-quota-burst", "memory-reclaim", "interference"}
	for name, c := range map[string]struct {
		withheld, hung error
		degraded       []string
	}{
		"all is well": {}, "full": {withheld: full, degraded: reach}, "hung": {hung: stuck, degraded: append([]string{"eviction"}, reach...)},
		"both": {withheld: full, hung: stuck, degraded: append([]string{"eviction"}, reach...)},
	} {
		l := &agent.Look{Wall: time.Unix(0, 0), Facts: decide.Facts{View: v}, Withheld: c.withheld}
		for _, s := range loopsInForce(&cfg, v, l, "", false, c.hung) {
			bad := slices.Contains(c.degraded, s.Feature)
			if (s.State == status.StateDegraded) != bad || c.hung != nil && bad && !strings.Contains(s.Detail, stuck.Error()) ||
				c.withheld != nil && bad && s.Feature != "eviction" && !strings.Contains(s.Detail, full.Error()) {
				t.Errorf("%s: %+v", name, s)
			}
		}
		rows := halted(loops(&cfg, true, "", l), c.hung, time.Unix(9, 0))
		for _, row := range rows[:4] {
			if (row.State == status.StateDegraded) != (c.degraded != nil) || c.withheld != nil && !strings.Contains(row.Err, full.Error()) {
				t.Errorf("%s: %+v", name, row)
			}
		}
		if row := rows[len(rows)-1]; (row.Name == "loops") != (c.hung != nil) || c.hung != nil && row.Err != stuck.Error() {
			t.Errorf("%s: %+v", name, row)
		}
		for _, row := range rows {
			if c.hung != nil && row.State == status.StateActive {
				t.Errorf("%s, and it goes on: %+v", name, row)
			}
		}
	}
}
