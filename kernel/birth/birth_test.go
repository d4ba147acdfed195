// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package birth_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/kernel/birth"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/node"
)

func running(t *testing.T) *birth.Watcher {
	t.Helper()
	w := birth.New()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func write(t *testing.T, file, value string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteString(value)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}

// until waits; what does not come ends with the test's own limit.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not in a minute", what)
		}
	}
}

// reads is a call that has seen enough when the file holds the value.
func reads(file, value string) (call func() bool, seen *atomic.Bool) {
	seen = new(atomic.Bool)
	return func() bool {
		raw, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(raw)) != value {
			return false
		}
		seen.Store(true)
		return true
	}, seen
}

// watches counts the inotify watches of this process.
func watches(t *testing.T) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		raw, err := os.ReadFile(f)
		if err == nil {
			n += strings.Count(string(raw), "inotify wd:")
		}
	}
	return n
}

// Tests of this package are not parallel: they count the process's watches.

// TestRealCgroup: the kernel tells of a group that is made after it was expected, and of its quota; also where the group is quicker than
// who expects it. When all of it is over no watch is left, whether or not the groups live.
func TestRealCgroup(t *testing.T) {
	version, dirs := kerneltest.Hierarchies(t)
	quota, first, second := "cpu.cfs_quota_us", "10000", "20000"
	if version == node.CgroupV2 {
		quota, first, second = "cgroup.max.depth", "1", "2" // which every group has, whatever its controllers
	}
	pod, err := os.MkdirTemp(dirs[0], "koord-birth-")
	kerneltest.Permitted(t, err)
	t.Cleanup(func() { _ = os.Remove(pod) })
	w := running(t)
	for name, quick := range map[string]bool{"expected": false, "quicker": true} {
		dir := filepath.Join(pod, name)
		call, seen := reads(filepath.Join(dir, quota), second)
		var calls atomic.Int32
		begin := func() {
			if err := w.Expect(dir, quota, func() bool { calls.Add(1); return call() }); err != nil {
				t.Fatal(err)
			}
		}
		if !quick {
			begin()
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if quick {
			begin()
		}
		until(t, name+": the group", func() bool { return calls.Load() > 0 }) // from now on the writes themselves are told
		write(t, filepath.Join(dir, quota), first)
		write(t, filepath.Join(dir, quota), second)
		until(t, name+": the quota", seen.Load)
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	}
	until(t, "an end of all watches", func() bool { return watches(t) == 0 })
}

// TestForget: what is forgotten is not called any more, Forget waits for a call that is under way, and a directory may be expected again.
func TestForget(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "one")
	w := running(t)
	w.Forget(dir) // of which it has never heard
	begun, let := make(chan struct{}, 1), make(chan struct{})
	var over atomic.Bool
	if err := w.Expect(dir, "f", func() bool {
		if over.Load() {
			t.Error("called after Forget")
		}
		begun <- struct{}{}
		<-let
		return false
	}); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	<-begun
	forgotten := make(chan struct{})
	go func() {
		defer close(forgotten)
		w.Forget(dir)
		over.Store(true)
	}()
	select {
	case <-forgotten:
		t.Error("forgotten while the call is under way")
	case <-time.After(20 * time.Millisecond): // long enough for who does not wait, no matter if not
	}
	close(let)
	<-forgotten
	write(t, filepath.Join(dir, "f"), "1")
	call, seen := reads(filepath.Join(dir, "f"), "2")
	for range 2 { // the second takes the first one's place
		if err := w.Expect(dir, "f", call); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "f"), "2")
	until(t, "the second write", seen.Load)
	until(t, "an end of all watches", func() bool { return watches(t) == 0 })
}

// TestNoParent: what cannot be watched is told, and costs nothing.
func TestNoParent(t *testing.T) {
	w := running(t)
	if err := w.Expect(filepath.Join(t.TempDir(), "missing", "one"), "f", func() bool { return true }); err == nil {
		t.Error("a directory without a parent is expected")
	}
	w.Forget(filepath.Join(t.TempDir(), "missing", "one"))
	until(t, "an end of all watches", func() bool { return watches(t) == 0 })
}

// TestEnded: who has ended expects nothing, and holds nothing.
func TestEnded(t *testing.T) {
	w := birth.New()
	ctx, cancel := context.WithCancel(t.Context())
	dir := filepath.Join(t.TempDir(), "one")
	if err := w.Expect(dir, "f", func() bool { return false }); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.Run(ctx); err != nil {
		t.Error(err)
	}
	if err := w.Expect(dir, "f", func() bool { return false }); err == nil {
		t.Error("expected by who has ended")
	}
	until(t, "an end of all watches", func() bool { return watches(t) == 0 })
}
