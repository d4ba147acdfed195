// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dirwatch

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func makeDir(dir string) error { return os.MkdirAll(dir, 0o700) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, dir string, poll time.Duration) *Watch {
	t.Helper()
	w := New(Options{Dir: dir, Make: makeDir, Poll: poll})
	t.Cleanup(w.Close)
	return w
}

// until waits for an event that is wanted.
func until(t *testing.T, w *Watch, what string, good func(Event) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		e := w.Next(ctx, nil)
		if good(e) {
			return
		}
		if e.Kind == Ended {
			t.Fatalf("never: %s; blind: %q", what, w.Blind())
		}
	}
}

func file(name string) func(Event) bool {
	return func(e Event) bool { return e.Kind == File && e.Name == name }
}

// The poll is an hour: what comes does so by inotify, or by the pace of one who is blind.
func TestFollows(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "here") + "/"
	w := start(t, dir, time.Hour)
	if w.Blind() != "" {
		t.Fatal(w.Blind())
	}
	must(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	until(t, w, "a file", file("a"))
	must(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")))
	until(t, w, "its new name", file("b"))
	if e := w.Next(t.Context(), time.After(0)); e.Kind != Woken {
		t.Errorf("%+v", e)
	}
}

// The directory goes: that is told at once and with its reason, its like is made within the blind pace, and events come again.
func TestGoneAndBack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	w := start(t, dir, time.Hour)
	must(t, os.RemoveAll(dir))
	until(t, w, "the loss", func(e Event) bool {
		return e.Kind == Lost && e.Blind && strings.Contains(w.Blind(), "within 1s") && strings.Contains(w.Blind(), "watch "+dir+": no such file")
	})
	until(t, w, "the end of it", func(e Event) bool { return e.Kind == Due && e.Blind && w.Blind() == "" })
	must(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	until(t, w, "a file in the new one", file("a"))
}

// Another directory takes the place: by the time of the event it stands there, and is watched.
func TestReplaced(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, next := filepath.Join(root, "d"), filepath.Join(root, "next")
	w := start(t, dir, time.Hour)
	must(t, makeDir(next))
	must(t, os.WriteFile(filepath.Join(next, "a"), nil, 0o600))
	must(t, unix.Rename(next, dir)) // over the empty one
	until(t, w, "the replacement", func(e Event) bool { return e.Kind == Lost && w.Blind() == "" })
	must(t, os.WriteFile(filepath.Join(dir, "b"), nil, 0o600))
	until(t, w, "a file in the new one", file("b"))
	must(t, os.Rename(dir, next))
	until(t, w, "the loss", func(e Event) bool { return e.Kind == Lost && e.Blind && w.Blind() != "" })
}

// A directory whose parent was moved away makes no event: the poll finds the one that stands at the path now.
func TestReplacedUnnoticed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "parent", "d")
	w := start(t, dir, 20*time.Millisecond)
	must(t, os.Rename(filepath.Join(root, "parent"), filepath.Join(root, "other")))
	must(t, makeDir(dir))
	until(t, w, "a look", func(e Event) bool { return e.Kind == Due })
	must(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	until(t, w, "a file in the new one", file("a"))
}

// A path that cannot be a directory says so and is tried again.
func TestNoDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	must(t, os.WriteFile(dir, nil, 0o600))
	w := start(t, dir, 20*time.Millisecond)
	if !strings.Contains(w.Blind(), "within 20ms") || !strings.Contains(w.Blind(), "not a directory") {
		t.Fatal(w.Blind())
	}
	must(t, os.Remove(dir))
	until(t, w, "the end of it", func(e Event) bool { return e.Blind && w.Blind() == "" })
}

// The kernel gives no instance (EMFILE), no watch (ENOSPC), then both.
func TestUsedUp(t *testing.T) {
	if !kerneltest.InUserNamespace(t) {
		return
	}
	const instances, watches, enough = "max_inotify_instances", "max_inotify_watches", 128
	kerneltest.Limit(t, instances, 0)
	kerneltest.Limit(t, watches, 0)
	dir := filepath.Join(t.TempDir(), "d")
	w := start(t, dir, time.Hour)
	if !strings.Contains(w.Blind(), "within 1s") || !strings.Contains(w.Blind(), "too many open files") {
		t.Fatal(w.Blind())
	}
	until(t, w, "a look all the same", func(e Event) bool { return e.Kind == Due && !e.Blind })
	kerneltest.Limit(t, instances, enough)
	until(t, w, "the next reason", func(e Event) bool {
		return e.Blind && strings.Contains(w.Blind(), "watch "+dir+": no space left on device")
	})
	until(t, w, "a look all the same", func(e Event) bool { return e.Kind == Due && !e.Blind })
	kerneltest.Limit(t, watches, enough)
	until(t, w, "the end of it", func(e Event) bool { return e.Blind && w.Blind() == "" })
	must(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	until(t, w, "a file", file("a"))
}

// A descriptor that cannot be read is given back rather than asked again and again.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	w := start(t, t.TempDir(), 20*time.Millisecond)
	errs := w.fs.Errors
	go func() { errs <- os.ErrInvalid }()
	until(t, w, "the loss", func(e Event) bool {
		return e.Kind == Lost && e.Blind && w.fs == nil && strings.Contains(w.Blind(), "read events")
	})
	until(t, w, "the end of it", func(e Event) bool { return e.Blind && w.Blind() == "" })
}
