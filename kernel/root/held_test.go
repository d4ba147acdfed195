// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package root_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/root"
)

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestHeld(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/cpu.stat", "one\n")
	h, err := root.Hold(dir, "cpu.stat")
	if err != nil || !h.Open() || h.Path() != dir+"/cpu.stat" {
		t.Fatal(h, err)
	}
	b := root.Get()
	defer b.Put()
	big := strings.Repeat("0123456 89\n", 2000)
	for _, want := range []string{"one", "", "three\nlines\nhere", strings.TrimRight(big, "\n"), "short again"} {
		put(t, dir+"/cpu.stat", want+"\n")
		if got, err := h.Read(b); err != nil || string(got) != want {
			t.Errorf("got %d bytes %.20q, want %.20q, %v", len(got), got, want, err)
		}
	}
	if n := testing.AllocsPerRun(50, func() { _, err = h.Read(b) }); n != 0 || err != nil {
		t.Errorf("%v allocations, %v", n, err)
	}
	h.Close()
	h.Close()
	if h.Open() || h.Path() != "" {
		t.Error("closed and open")
	}
	if _, err := root.Hold(dir, "cpu.none"); !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), dir+"/cpu.none") {
		t.Errorf("no file: %v", err)
	}
}

// TestHeldWithoutDescriptors: a process at its limit still reads, one open at a time. It changes the process's limit, so it is not
// parallel.
func TestHeldWithoutDescriptors(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/a", "1\n")
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = 0 // what is open stays open
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	h, err := root.Hold(dir, "a")
	restored := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	if err != nil || restored != nil || !h.Open() {
		t.Fatal(err, restored)
	}
	b := root.Get()
	defer b.Put()
	if got, err := h.Read(b); err != nil || string(got) != "1" {
		t.Errorf("%q, %v", got, err)
	}
	h.Close()
}

func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir+"/n", "41\n")
	bad := errors.New("not a number")
	f, err := root.NewFile(dir, "n", func(b []byte, out *string) error {
		if string(b) == "x" {
			return bad
		}
		*out = string(b)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := root.Get()
	defer b.Put()
	var got string
	if err := f.Read(b, &got); err != nil || got != "41" {
		t.Errorf("%q, %v", got, err)
	}
	put(t, dir+"/n", "x")
	if err := f.Read(b, &got); !errors.Is(err, bad) || !strings.Contains(err.Error(), "parse "+dir+"/n") {
		t.Error(err)
	}
	if _, err := root.NewFile(dir, "none", func([]byte, *string) error { return nil }); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
}

// Only what the process or the system has run out of says nothing of a file.
func TestExhausted(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{nil: false, unix.ENOENT: false, unix.EACCES: false, unix.EMFILE: true, unix.ENFILE: true, unix.ENOMEM: true} {
		if root.Exhausted(errors.Join(err, &root.FileError{Op: "open", Path: "x", Err: err})) != want {
			t.Errorf("%v: not %t", err, want)
		}
	}
}
