// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestWriteReplacesAndCleanRemovesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	if err := Dir(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "f")
	for _, s := range []string{"long content", "short"} {
		if err := Write(path, []byte(s)); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != s {
			t.Errorf("%q %v", b, err)
		}
	}
	for p, want := range map[string]os.FileMode{dir: 0o700, path: 0o600} {
		if st, err := os.Stat(p); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v %v", p, st.Mode(), err)
		}
	}
	mine, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = mine.Close()
	other, err := Create(path + "2")
	if err != nil {
		t.Fatal(err)
	}
	_ = other.Close()
	if !IsTemp(mine.Name()) || IsTemp(path) {
		t.Error("IsTemp")
	}
	Clean(path)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left: %v %v", entries, err)
	}
}

// A directory that is closed already is not touched: a change of its mode, also to the same, waits for a disk that hangs.
func TestClosedDirectoryIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	changed := func(path string) syscall.Timespec {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return st.Sys().(*syscall.Stat_t).Ctim
	}
	closes := func() {
		t.Helper()
		if err := Dir(dir); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(dir); err != nil || st.Mode() != os.ModeDir|0o700 {
			t.Errorf("%v %v", st.Mode(), err)
		}
	}
	closes()
	before := changed(dir)
	for other := filepath.Join(t.TempDir(), "f"); ; { // until the filesystem's clock has gone on
		if err := os.WriteFile(other, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if changed(other) != before {
			break
		}
		if err := os.Remove(other); err != nil {
			t.Fatal(err)
		}
	}
	if closes(); changed(dir) != before {
		t.Error("it is changed")
	}
	for _, open := range []os.FileMode{0o755, 0o500, 0o700 | os.ModeSticky, 0o700 | os.ModeSetgid} {
		if err := os.Chmod(dir, open); err != nil {
			t.Fatal(err)
		}
		closes()
	}
}

func TestWriteFailsCleanly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := Write(filepath.Join(dir, "no", "f"), nil); err == nil {
		t.Error("wrote into a directory that does not exist")
	}
	// A directory cannot be replaced by a file; the temporary file goes.
	if err := os.MkdirAll(filepath.Join(dir, "f", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "f"), []byte("x")); err == nil {
		t.Error("replaced a directory")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left: %v", entries)
	}
}

// Who fails twice in the same way says the same twice, though each try has a temporary file of its own.
func TestErrorsDoNotNameTheTemporaryFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "f"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "f"):       "write " + filepath.Join(dir, "f") + ": file exists",
		filepath.Join(dir, "no", "f"): "create a temporary file for " + filepath.Join(dir, "no", "f") + ": no such file or directory",
	} {
		for range 2 {
			if err := Write(path, nil); err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if _, err = full.WriteString("x"); !errors.Is(err, syscall.ENOSPC) || Bare(err).Error() != syscall.ENOSPC.Error() {
		t.Errorf("%v", err)
	}
	if Bare(nil) != nil || !errors.Is(Bare(os.ErrClosed), os.ErrClosed) {
		t.Error("what names no file is changed")
	}
}

// The bytes are on the disk before the name is theirs, and a disk that takes none of them leaves the old file and nothing else.
func TestBytesReachTheDiskBeforeTheName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	stands := func() string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	if err := WriteThrough(path, []byte("old")); err != nil || stands() != "old" {
		t.Fatal(err)
	}
	for _, broken := range []error{syscall.EIO, nil} {
		synced := 0
		err := replace(path, []byte("new"), func(f *os.File) error {
			synced++
			if b, err := os.ReadFile(f.Name()); err != nil || string(b) != "new" || !IsTemp(f.Name()) || stands() != "old" {
				t.Errorf("%s holds %q when it is brought to the disk, its path %q: %v", f.Name(), b, stands(), err)
			}
			return broken
		})
		if !errors.Is(err, broken) || synced != 1 || (stands() == "new") != (broken == nil) {
			t.Errorf("brought to the disk %d times, %v: %s stands there", synced, err, stands())
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("left: %v", left)
		}
	}
	for said, want := range map[error]error{nil: nil, syscall.EINVAL: nil, syscall.EIO: syscall.EIO} {
		if err := syncDir(dir, func(f *os.File) error {
			if f.Name() != dir {
				t.Errorf("%s is brought to the disk", f.Name())
			}
			return said
		}); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}
