// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package lock keeps a second instance of a daemon from running: a second live NRI connection of one plugin breaks
// every container creation on the node.
//
// Input is a path; output is a lock (flock, so the kernel drops it with the process) or an error that names the holder.
// It imports daemon/atomicfile, the standard library and golang.org/x/sys only.
package lock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/daemon/atomicfile"
)

// HeldError says that another process has the lock.
type HeldError struct {
	Path string
	// PID of the holder, 0 when the file does not tell.
	PID int
}

// Error names the file and the holder.
func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("lock %s: held by another process", e.Path)
	}
	return fmt.Sprintf("lock %s: held by process %d; stop it first", e.Path, e.PID)
}

// ErrReplaced: the file that is locked is not the one of its name any more, so that another process may lock that.
var ErrReplaced = errors.New("another file has taken its place")

// Lock is a held lock.
type Lock struct {
	f *os.File
	// pid is the file open for writing, nil before ours stands in it.
	pid *os.File
}

// Path is the lock file of a program, which is named as in the ledger: "nri".
func Path(runDir, writer string) string { return filepath.Join(runDir, writer+".lock") }

// Acquire takes the lock and writes our pid into the file. The error is a *HeldError when another process holds it. The
// file stays when the lock goes: removing it would let two processes lock two files of one name.
func Acquire(path string) (*Lock, error) {
	l, err := Take(path)
	if err != nil {
		return nil, err
	}
	if err := l.Sign(); err != nil {
		return nil, errors.Join(err, l.Release())
	}
	return l, nil
}

// Take takes the lock without our pid, which Sign writes. A file that can be read and not written, as one on a filesystem that has become
// read-only, is locked as well as another: two that cannot write must not both believe to be alone.
func Take(path string) (*Lock, error) {
	err := atomicfile.Dir(filepath.Dir(path))
	var f *os.File
	if err == nil {
		if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600); err != nil {
			err = fmt.Errorf("open lock: %w", err)
		}
	}
	if err != nil {
		if f = readable(path); f == nil {
			return nil, err
		}
	}
	if err := take(f); err != nil {
		held := &HeldError{Path: path, PID: readPID(f)}
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, held
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &Lock{f: f}, nil
}

// readable opens a lock file that cannot be written; nil when there is none.
func readable(path string) *os.File {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil
	}
	return f
}

// Sign writes our pid into the file, by which others know that somebody holds it; once it stands there it only looks whether the file does.
// The error is an ErrReplaced where the file has been removed or replaced.
func (l *Lock) Sign() error {
	if l.pid != nil {
		return l.stands()
	}
	f, err := os.OpenFile(l.f.Name(), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write pid to lock %s: %w", l.f.Name(), ErrReplaced)
	}
	if err != nil {
		return fmt.Errorf("write pid to lock: %w", err)
	}
	if err := sign(f, l.f); err != nil {
		_ = f.Close() // the lock is that of l.f, and stays
		return err
	}
	l.pid = f
	return nil
}

// stands reports whether the file that is locked is still the one that others find.
func (l *Lock) stands() error {
	ours, err := l.f.Stat()
	if err != nil {
		return fmt.Errorf("look for lock: %w", err)
	}
	now, err := os.Lstat(l.f.Name())
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), err == nil && !os.SameFile(ours, now):
		return fmt.Errorf("lock %s: %w", l.f.Name(), ErrReplaced)
	case err != nil:
		return fmt.Errorf("look for lock: %w", err)
	}
	return nil
}

func sign(f, locked *os.File) error {
	ours, err := locked.Stat()
	if err != nil {
		return fmt.Errorf("write pid to lock: %w", err)
	}
	if now, err := f.Stat(); err != nil || !os.SameFile(ours, now) {
		return fmt.Errorf("write pid to lock %s: %w", f.Name(), ErrReplaced)
	}
	return writePID(f)
}

// A lock that is not free is tried again this often: Alive holds it for a moment.
const (
	tries = 5
	pause = 5 * time.Millisecond
)

func take(f *os.File) (err error) {
	for i := range tries {
		if i > 0 {
			time.Sleep(pause)
		}
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
	}
	return err
}

// Leave marks the lock: its holder is about to end, and for Alive it has ended. Nobody else can take it before Release.
func (l *Lock) Leave() error {
	if l.pid == nil { // nothing of ours stands there
		return nil
	}
	if err := l.pid.Truncate(0); err != nil {
		return fmt.Errorf("empty lock %s: %w", l.f.Name(), err)
	}
	return nil
}

// Alive reports whether a process holds the lock that has not said that it leaves. A file that cannot be read is nobody's.
func Alive(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() // and with it the lock, if it was free
	return readPID(f) != 0 && errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Release gives the lock back.
func (l *Lock) Release() error {
	errs := []error{l.Leave()}
	if l.pid != nil {
		errs = append(errs, l.pid.Close())
	}
	if err := errors.Join(append(errs, l.f.Close())...); err != nil {
		return fmt.Errorf("release lock: %w", err)
	}
	return nil
}

// Holder reads the pid that stands in a lock file; 0 when it is empty or missing. Whether that process lives is the
// caller's question, or Alive's.
func Holder(path string) int {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	return readPID(f)
}

func readPID(f *os.File) int {
	b := make([]byte, 32)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("empty lock %s: %w", f.Name(), err)
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("write pid to lock %s: %w", f.Name(), err)
	}
	return nil
}
