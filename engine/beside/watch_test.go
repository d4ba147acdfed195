// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package beside_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/daemon/boottime"
	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/engine/beside"
)

// holder makes the test binary a program that holds koord-nri's lock in the directory that it names.
const holder = "KOORD_RT_TEST_HOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holder); dir != "" {
		_, err := lock.Acquire(lock.Path(dir, "nri"))
		if err = errors.Join(err, tell(dir, "nri", time.Now(), time.Now())); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed, or the test has gone
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// tell writes a program's status.
func tell(dir, writer string, written, connected time.Time) error {
	return status.Write(dir, writer, status.Status{Written: written, ConnectedSince: connected})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Nobody goes before somebody who goes before him.
func TestFirst(t *testing.T) {
	t.Parallel()
	for writer, want := range map[string][]string{"nri": nil, "cri": {"nri"}, "koordlet": {"nri", "cri"}, "ctl-4711": nil} {
		if got := beside.First(writer); !slices.Equal(got, want) {
			t.Errorf("before %s: %q, want %q", writer, got, want)
		}
	}
}

// Who goes first counts while his status says that he is connected, and is fresh; his end is told once.
func TestWatch(t *testing.T) {
	t.Parallel()
	dir, gone := t.TempDir(), 0
	for _, writer := range []string{"nri", "cri"} {
		l, err := lock.Acquire(lock.Path(dir, writer))
		must(t, err)
		t.Cleanup(func() { must(t, l.Release()) })
	}
	proxy, koordlet := beside.New(dir, "/proc", "cri"), beside.New(dir, "/proc", "koordlet")
	proxy.OnGone(func() { gone++ })
	now := time.Now()
	for _, step := range []struct {
		what, writer       string
		written, connected time.Time
		proxy, koordlet    bool
		gone               int
	}{
		{"a proxy that is not connected", "cri", now, time.Time{}, false, false, 0},
		{"a proxy", "cri", now, now, false, true, 0},
		{"a plugin without a connection", "nri", now, time.Time{}, false, true, 0},
		{"a connected plugin", "nri", now, now, true, true, 0},
		{"a proxy that hangs", "cri", now.Add(-time.Minute), now, true, true, 0},
		{"a plugin that hangs", "nri", now.Add(-time.Minute), now, false, false, 1},
		{"one that has gone on", "nri", now, now, true, true, 1},
		{"one that lost its connection", "nri", now, time.Time{}, false, false, 2},
		{"the same a second later", "nri", now, time.Time{}, false, false, 2},
	} {
		must(t, tell(dir, step.writer, step.written, step.connected))
		if got := proxy.Now(); got != step.proxy || gone != step.gone || proxy.Covered() != got {
			t.Errorf("%s: the proxy is covered: %v, told of an end %d times; want %v and %d", step.what, got, gone, step.proxy, step.gone)
		}
		if got := koordlet.Now(); got != step.koordlet {
			t.Errorf("%s: koordlet is covered: %v, want %v", step.what, got, step.koordlet)
		}
		// Who is silent may still stand in the path.
		if got := proxy.InPath(); got != (step.writer == "nri" && !step.connected.IsZero() || step.writer == "cri" && step.proxy) {
			t.Errorf("%s: the plugin is in the proxy's path: %v", step.what, got)
		}
	}
}

// The time of day may be set while a writer works: what counts is the machine's own clock. One who stamps nothing but the time of day
// is aged by that.
func TestWatchOverAClockJump(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := lock.Acquire(lock.Path(dir, "nri"))
	must(t, err)
	t.Cleanup(func() { must(t, l.Release()) })
	w, gone := beside.New(dir, "/proc", "koordlet"), 0
	w.OnGone(func() { gone++ })
	now, up := time.Now(), boottime.Now()
	for _, step := range []struct {
		what    string
		written time.Time
		up      time.Duration
		covered bool
	}{
		{"a plugin", now, up, true},
		{"the clock was set forward by an hour since", now.Add(-time.Hour), up - 4*time.Second, true},
		{"the clock was set back by an hour since", now.Add(time.Hour), up - 4*time.Second, true},
		{"it hangs, and the clock was set back", now.Add(time.Hour), up - time.Minute, false},
		{"it goes on", now.Add(time.Hour), up, true},
		{"an older plugin", now, 0, true},
		{"an older plugin that hangs", now.Add(-time.Minute), 0, false},
		{"a stamp of another boot", now, up + time.Hour, true},
		{"an old stamp of another boot", now.Add(-time.Minute), up + time.Hour, false},
	} {
		must(t, status.Write(dir, "nri", status.Status{Written: step.written, Up: step.up, ConnectedSince: now}))
		if got := w.Now(); got != step.covered {
			t.Errorf("%s: covered: %v", step.what, got)
		}
	}
	if gone != 3 {
		t.Errorf("told of %d ends, want 3", gone)
	}
}

// A status whose process lives says nothing when nobody holds the lock: a number has been given again, or the program is
// about to end.
func TestWatchAsksTheLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := beside.New(dir, "/proc", "koordlet")
	must(t, tell(dir, "nri", time.Now(), time.Now()))
	must(t, os.WriteFile(lock.Path(dir, "nri"), fmt.Appendln(nil, os.Getpid()), 0o600)) // what kill -9 leaves
	if w.Now() {
		t.Error("covered by nobody")
	}
	l, err := lock.Acquire(lock.Path(dir, "nri"))
	must(t, err)
	if !w.Now() {
		t.Error("not covered by who holds the lock")
	}
	must(t, l.Leave())
	if w.Now() {
		t.Error("covered by one who leaves")
	}
	must(t, l.Release())
}

// A program that was killed covers nothing from that moment on, although it is still listed until somebody has buried it.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holder+"="+dir)
	_, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	w := beside.New(dir, "/proc", "koordlet")
	gone := 0
	w.OnGone(func() { gone++ })
	if !w.Now() || gone > 0 {
		t.Error("not covered by a program that lives")
	}
	must(t, cmd.Process.Kill())
	must(t, unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
	entries, err := status.ReadAll(dir, "/proc")
	if err != nil || len(entries) != 1 || !entries[0].Alive {
		t.Fatalf("the test shows nothing, the process is not listed any more: %+v, %v", entries, err)
	}
	if w.Now() || gone != 1 {
		t.Errorf("covered by a dead program; its end was told %d times", gone)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the program has ended by itself")
	}
}
