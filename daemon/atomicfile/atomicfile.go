// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package atomicfile replaces a file as a whole: a reader sees the old content or the new one, never a part.
//
// Input is a path and bytes; output is the file. Write has no fsync: most files lie on tmpfs. WriteThrough is for those on
// a disk that the next boot reads: a rename alone may leave an empty file after a power cut. It imports the standard library only.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// tempMark stands in the name of every temporary file, so that leftovers of a killed writer can be told apart.
const tempMark = ".tmp-"

// Write replaces path by data with mode 0600. The directory must exist.
func Write(path string, data []byte) error { return replace(path, data, nil) }

// WriteThrough is Write to a disk: a power cut before it returns leaves the old file or the new one, whole, and one after that
// the new one. It takes as long as the disk does.
func WriteThrough(path string, data []byte) error {
	if err := replace(path, data, (*os.File).Sync); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(path), (*os.File).Sync); err != nil {
		return fmt.Errorf("write %s: %w", path, Bare(err))
	}
	return nil
}

// syncDir has the names in a directory reach the disk. A filesystem that knows no fsync of a directory says EINVAL.
func syncDir(dir string, sync func(*os.File) error) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err = sync(f); errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}

// replace writes a temporary file, has sync bring its bytes to the disk where there is one, and gives it path's name.
func replace(path string, data []byte, sync func(*os.File) error) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && sync != nil {
		err = sync(f)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, Bare(err))
	}
	return nil
}

// Bare is an error of a file operation without the name of the temporary file, which is another one each time: who tells an error once,
// and tries again every second, would take each for a new one.
func Bare(err error) error {
	var of *fs.PathError
	var between *os.LinkError
	switch {
	case errors.As(err, &of):
		return of.Err
	case errors.As(err, &between):
		return between.Err
	}
	return err
}

// Create makes the temporary file (0600) that is to take path's place, for those who write it piece by piece.
func Create(path string) (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+tempMark)
	if err != nil {
		return nil, fmt.Errorf("create a temporary file for %s: %w", path, Bare(err))
	}
	return f, nil
}

// Clean removes what killed writers of path left behind. Call it before the first Write of a process, and only by the
// one process that writes path.
func Clean(path string) {
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+tempMark+"*"))
	if err != nil {
		return
	}
	for _, f := range left {
		_ = os.Remove(f)
	}
}

// IsTemp reports whether a file name is that of a temporary file of Write.
func IsTemp(name string) bool { return strings.Contains(name, tempMark) }

// Dir makes a directory with mode 0700 where it is missing; an existing directory of ours is closed to others, whatever
// the umask of its maker was. One that has that mode is left alone: on a disk a change that changes nothing waits for it, too.
func Dir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make directory %s: %w", path, err)
	}
	if st, err := os.Stat(path); err == nil && st.Mode() == fs.ModeDir|0o700 {
		return nil
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return fmt.Errorf("close directory %s to others: %w", path, err)
	}
	return nil
}
