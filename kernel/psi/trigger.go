// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package psi

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
)

// Kind is which line of the file a trigger watches.
type Kind uint8

// Kinds.
const (
	Some Kind = iota
	Full
)

// Limits of a trigger's window (kernel/sched/psi.c, WINDOW_MIN_US and WINDOW_MAX_US).
const (
	MinWindow = 500 * time.Millisecond
	MaxWindow = 10 * time.Second
	// FreeWindow: without CAP_SYS_RESOURCE only multiples of it are taken, and none before Linux 6.5.
	FreeWindow = 2 * time.Second
)

// Trigger fires when, within any Window, tasks were stalled for Stall in all. It fires at most once in a window.
type Trigger struct {
	Kind          Kind
	Stall, Window time.Duration
}

// String is what the kernel wants: "some 70000 1000000".
func (t Trigger) String() string {
	kind := "some"
	if t.Kind == Full {
		kind = "full"
	}
	return fmt.Sprintf("%s %d %d", kind, t.Stall.Microseconds(), t.Window.Microseconds())
}

// Check says why no kernel would take the trigger.
func (t Trigger) Check() error {
	switch {
	case t.Kind > Full:
		return fmt.Errorf("pressure trigger: no such kind %d", t.Kind)
	case t.Window < MinWindow || t.Window > MaxWindow:
		return fmt.Errorf("pressure trigger %q: window %v is not between %v and %v", t, t.Window, MinWindow, MaxWindow)
	case t.Stall < time.Microsecond || t.Stall > t.Window:
		return fmt.Errorf("pressure trigger %q: stall %v is not between 1µs and the window of %v", t, t.Stall, t.Window)
	}
	return nil
}

// arm opens the file and sets the trigger, which lives as long as the descriptor. A kernel, file or right that cannot have it is
// a *proc.UnsupportedError, which is errors.ErrUnsupported.
func arm(path string, t Trigger) (fd int, err error) {
	if err := t.Check(); err != nil {
		return -1, err
	}
	fd, err = unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, explain(path, t, "open", err)
	}
	// The kernel takes the text with a NUL at its end.
	if _, err = unix.Write(fd, append([]byte(t.String()), 0)); err != nil {
		unix.Close(fd) //nolint:errcheck // nothing was set
		return -1, explain(path, t, "write", err)
	}
	return fd, nil
}

// explain names what each errno means here.
func explain(path string, t Trigger, op string, err error) error {
	file := &root.FileError{Op: op, Path: path, Err: err}
	if op == "write" {
		file.Value = t.String()
	}
	no := func(why string) error {
		return fmt.Errorf("%w: %w", &proc.UnsupportedError{Feature: "pressure trigger " + t.String(), Why: why}, file)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return no("no such file: the kernel has no CONFIG_PSI or was booted with psi=0, it is no cgroup v2, or the cgroup is gone")
	case errors.Is(err, unix.EOPNOTSUPP):
		return no("pressure accounting is off: psi=0, or cgroup.pressure of this cgroup is 0")
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return no("no right to write: before Linux 6.5 it needs CAP_SYS_RESOURCE")
	case errors.Is(err, unix.EINVAL) && t.Window%FreeWindow != 0:
		return no("without CAP_SYS_RESOURCE the window must be a multiple of 2s; or the file has no such line")
	case errors.Is(err, unix.EINVAL):
		return no("the file has no such line, or is no pressure file")
	}
	return file
}
