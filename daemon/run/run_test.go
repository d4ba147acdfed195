// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// diary notes what happens in which order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, s)
}

func (d *diary) component(name string, startErr error) Component {
	return Component{
		Name:  name,
		Start: func(context.Context) error { d.note("start " + name); return startErr },
		Run:   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		Stop:  func(context.Context) error { d.note("stop " + name); return nil },
	}
}

func TestGroupStartsInOrderAndStopsInReverse(t *testing.T) {
	t.Parallel()
	d := &diary{}
	ctx, cancel := context.WithCancel(t.Context())
	g := &Group{OnReady: func() { d.note("ready"); cancel() }, OnStopping: func() { d.note("stopping") }}
	g.Add(d.component("a", nil))
	g.Add(d.component("b", nil))
	if err := g.Run(ctx); err != nil {
		t.Error(err)
	}
	if want := []string{"start a", "start b", "ready", "stopping", "stop b", "stop a"}; !slices.Equal(d.lines, want) {
		t.Errorf("%q", d.lines)
	}
}

func TestGroupUnwindsAFailedStart(t *testing.T) {
	t.Parallel()
	d := &diary{}
	bad := errors.New("bad")
	g := &Group{OnReady: func() { d.note("ready") }}
	g.Add(d.component("a", nil))
	g.Add(d.component("b", bad))
	g.Add(d.component("c", nil))
	if err := g.Run(t.Context()); !errors.Is(err, bad) || !strings.Contains(err.Error(), "start b") {
		t.Error(err)
	}
	if want := []string{"start a", "start b", "stop a"}; !slices.Equal(d.lines, want) {
		t.Errorf("%q", d.lines)
	}
}

func TestGroupEndsWithItsFirstComponent(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	for name, c := range map[string]struct {
		run  func(context.Context) error
		want string
	}{
		"error":    {func(context.Context) error { return bad }, "run x: bad"},
		"early":    {func(context.Context) error { return nil }, "run x: ended by itself"},
		"panic":    {func(context.Context) error { panic("ouch") }, "run x: panic: ouch"},
		"canceled": {func(context.Context) error { return context.Canceled }, "run x: context canceled"},
	} {
		d := &diary{}
		g := &Group{}
		g.Add(d.component("a", nil))
		g.Add(Component{Name: "x", Run: c.run})
		if err := g.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Contains(d.lines, "stop a") {
			t.Errorf("%s: a was not stopped", name)
		}
	}
}

func TestNotifier(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "n")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	env := map[string]string{"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "20000", "WATCHDOG_PID": fmt.Sprint(os.Getpid())}
	n := NewNotifier(func(k string) string { return env[k] })
	receive := func(want string) {
		t.Helper()
		b := make([]byte, 100)
		_ = l.SetReadDeadline(time.Now().Add(60 * time.Second))
		m, err := l.Read(b)
		if err != nil || string(b[:m]) != want {
			t.Fatalf("got %q, %v; want %q", b[:m], err, want)
		}
	}
	for _, c := range []struct {
		send func() error
		want string
	}{{n.Ready, "READY=1"}, {n.Stopping, "STOPPING=1"}} {
		if err := c.send(); err != nil {
			t.Fatal(err)
		}
		receive(c.want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Watchdog(ctx, slog.New(slog.DiscardHandler), nil) }()
	receive("WATCHDOG=1")
	receive("WATCHDOG=1")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	off := NewNotifier(func(string) string { return "" })
	if err := errors.Join(off.Ready(), off.Watchdog(ctx, slog.New(slog.DiscardHandler), nil)); err != nil {
		t.Error(err)
	}
}

// Nothing is sent while the daemon is not healthy, so that systemd starts it anew.
func TestWatchdogWaitsForHealth(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "n")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	env := map[string]string{"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "2000", "WATCHDOG_PID": fmt.Sprint(os.Getpid())}
	n := NewNotifier(func(k string) string { return env[k] })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const sick = 3
	var asked atomic.Int64
	done := make(chan error)
	go func() {
		done <- n.Watchdog(ctx, slog.New(slog.DiscardHandler), func() error {
			if asked.Add(1) <= sick {
				return errors.New("a loop hangs")
			}
			return nil
		})
	}()
	_ = l.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := l.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n <= sick {
		t.Errorf("pinged after %d questions, all of which were answered with an error", n)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A ping that cannot be sent does not end the daemon: it is logged once, and the next one goes out when it can.
func TestWatchdogOutlivesItsSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "n")
	env := map[string]string{"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "2000", "WATCHDOG_PID": fmt.Sprint(os.Getpid())}
	n := NewNotifier(func(k string) string { return env[k] })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var logged strings.Builder // read when Watchdog has returned
	const tries = 4
	asked, done := make(chan struct{}, tries), make(chan error, 1)
	go func() {
		done <- n.Watchdog(ctx, slog.New(slog.NewTextHandler(&logged, nil)), func() error {
			select {
			case asked <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	for range tries { // all but the last have not been sent
		select {
		case <-asked:
		case err := <-done:
			t.Fatalf("ended: %v", err)
		}
	}
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_ = l.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := l.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := strings.Count(logged.String(), "ping the watchdog"); n != 1 {
		t.Errorf("logged %d times: %s", n, &logged)
	}
}

func TestSignals(t *testing.T) {
	ctx, stop := Signals(t.Context())
	defer stop()
	if err := unix.Kill(os.Getpid(), unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(60 * time.Second):
		t.Error("the signal was not seen")
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	v := Version{Program: "koord-nri", Version: "v0.1.0", Commit: "abc"}.String()
	if !strings.HasPrefix(v, "koord-nri v0.1.0 (abc, go1.") {
		t.Error(v)
	}
}
